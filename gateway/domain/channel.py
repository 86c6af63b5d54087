"""A channel: a messenger behind one shape, with its differences stated as capabilities."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gateway.domain.errors import SupaclawError
from gateway.domain.inbound import Address, Inbound

Accept = Callable[[Sequence[Inbound]], Awaitable[None]]
"""Stores a batch in order; returning means committed. Raises `TryAgainLater` when nothing may be acknowledged."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the platform can do; core code asks these and never which channel it holds."""

    max_text: int
    """The longest message, in UTF-16 units."""
    drafts: bool = False
    """A private chat can show an answer while it is written."""
    typing: bool = False
    idempotent_send: bool = False
    """A send that may have happened can safely be repeated."""
    silence: float | None = None
    """The longest time in seconds that a healthy connection can be silent; None: silence says nothing."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to send. `text` is Markdown, already short enough; `key` is stable over retries."""

    address: Address
    text: str
    key: str
    private: bool = True


class SendFailed(SupaclawError):
    """The platform refused for good (blocked, chat gone); trying again is pointless."""


class SendDelayed(SupaclawError):
    """The platform did not take it and nothing was shown; try again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SendUncertain(SupaclawError):
    """The request left and no answer came back: it may have been shown."""


class Channel(Protocol):
    """One messenger. The SDK is imported in `open`, never before."""

    name: str
    capabilities: Capabilities

    @property
    def heard_at(self) -> float | None:
        """When the platform last answered the receiving side, by `time.monotonic`; None: not yet, or cannot tell.

        What counts are answers and arrivals, never the state of a socket. It may lie ahead for as long as the platform
        asked to be left alone.
        """
        ...

    async def open(self) -> None:
        """Import the SDK and connect; raises `OwnerMustAct` when the settings cannot work."""
        ...

    async def receive(self, accept: Accept) -> None:
        """Hand over what arrives, in platform order, until cancelled; reconnects by itself and for ever."""
        ...

    async def send(self, message: Outgoing) -> str:
        """The platform's id of the sent message; raises `SendFailed`, `SendDelayed` or `SendUncertain`."""
        ...

    async def typing(self, address: Address) -> None:
        """Show that an answer is being written; best effort, never raises for platform errors."""
        ...

    async def draft(self, address: Address, draft: int, text: str) -> None:
        """Show an unfinished answer in a private chat; best effort, never raises for platform errors."""
        ...

    async def close(self) -> None:
        """Let go of every socket."""
        ...


@dataclass(frozen=True, slots=True)
class WebhookReply:
    """What to answer the platform's HTTP request."""

    status: int
    text: str = ""


@runtime_checkable
class WebhookChannel(Protocol):
    """A channel that can also be pushed to over HTTP (`POST /webhook/<name>`)."""

    async def deliver(self, headers: Mapping[str, str], body: bytes) -> WebhookReply:
        """Check the secret, accept the update, answer only once it is committed."""
        ...


@runtime_checkable
class ProbedChannel(Protocol):
    """A channel whose credentials can be tried beside a gateway that is using them, for `supaclaw doctor --live`."""

    async def probe(self) -> str:
        """Our name on the platform, such as "@bot". Called instead of `open`, then comes `close`.

        Takes nothing in and disturbs no other connection; raises `SupaclawError` when the platform does not know us.
        """
        ...
