"""A channel: a messenger behind one interface, its differences stated as capabilities, and the facts it stores."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol, runtime_checkable

from gateway.domain.conversation.inbound import Address, Attachment, Inbound
from gateway.domain.errors import SupaclawError


class ChannelFacts(Protocol):
    """The facts of one channel. Only the process that has the channel open writes them."""

    async def load(self) -> Mapping[str, str]:
        """All of them, those that were saved longest ago first; raises `TryAgainLater`."""

    async def save(self, changes: Mapping[str, str | None]) -> None:
        """Store these, all or none; None removes one. Raises `TryAgainLater`."""


class NoFacts:
    """For channels that are only probed, never opened."""

    async def load(self) -> Mapping[str, str]:
        """None."""
        return {}

    async def save(self, changes: Mapping[str, str | None]) -> None:
        """Forget them."""


Menu = Sequence[tuple[str, str]]
"""The slash commands that a channel may show, each with its summary."""
Accept = Callable[[Sequence[Inbound]], Awaitable[None]]
"""Stores a batch in order; returning means committed. Raises `TryAgainLater` when nothing may be acknowledged."""


class Drafts(StrEnum):
    """Chats in which a platform can show an answer while it is written."""

    NOWHERE = "nowhere"
    PRIVATE = "private"
    THREADS = "threads"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The platform's abilities; core code asks these and never which channel it holds."""

    max_text: int
    """The longest message, in UTF-16 units."""
    max_marks: int | None = None
    """How many formatted pieces (bold, code, a link) of one message are shown as such; None: any number."""
    drafts: Drafts = Drafts.NOWHERE
    typing: bool = False
    idempotent_send: bool = False
    """A send that may have happened can safely be repeated."""
    reactions: bool = False
    """A message is marked as seen while it is being answered."""
    buttons: bool = False
    max_file: int = 0
    """The largest file that can be sent, in bytes; 0: none."""
    portable: bool = True
    """It keeps nothing in files, so another machine can open it at any moment."""
    silence: float | None = None
    """The longest time in seconds that a healthy connection can be silent; None: silence says nothing."""

    def drafts_at(self, address: Address, *, private: bool) -> bool:
        """Whether an unfinished answer can be shown there."""
        return private if self.drafts is Drafts.PRIVATE else self.drafts is Drafts.THREADS and bool(address.thread)


@dataclass(frozen=True, slots=True)
class Button:
    """A choice under a message: pressing it says `value`, at most 64 bytes."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file to send; `path` is absolute, `size` in bytes."""

    path: str
    name: str
    mime: str
    size: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to send. `text` is Markdown, already short enough; `key` is stable over retries.

    With a `file` the text is its caption and may be empty. `again` says that an earlier send of the same key may have
    been shown. `reply_to` is the platform id of the message it answers, where several people write. `buttons` are left
    out where there are none: the text says everything they do.
    """

    address: Address
    text: str
    key: str
    private: bool = True
    again: bool = False
    file: OutgoingFile | None = None
    buttons: tuple[Button, ...] = ()
    reply_to: str | None = None


class SendFailed(SupaclawError):
    """The platform refused permanently (blocked, chat gone); retrying is pointless."""


class SendDelayed(SupaclawError):
    """The platform did not take it and nothing was shown; try again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SendUncertain(SupaclawError):
    """The request left and no answer came back: it may have been shown. `lasting`: no later look can tell."""

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


class FetchFailed(SupaclawError):
    """The platform does not hand a file out, and never will: gone, too large, not for us. The text is for people."""


class FetchDelayed(SupaclawError):
    """The platform cannot be reached at the moment; the file may be fetched later."""


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

    @property
    def trouble(self) -> str:
        """Why nothing can arrive, in words, by the platform's last answer; "" when something can."""

    async def open(self) -> None:
        """Import the SDK and connect; raises `OwnerMustAct` when the settings cannot work."""

    async def receive(self, accept: Accept) -> None:
        """Hand over what arrives, in platform order, until cancelled; reconnects by itself, forever."""

    async def send(self, message: Outgoing) -> str:
        """The platform's id of the sent message; raises `SendFailed`, `SendDelayed` or `SendUncertain`."""

    async def typing(self, address: Address) -> None:
        """Show that an answer is being written; best effort, never raises for platform errors."""

    async def draft(self, address: Address, draft: int, text: str) -> bool | None:
        """Show an unfinished answer where `capabilities.drafts` says; never raises for platform errors.

        False: the platform did not take it, and is asked more rarely. May be cancelled. `send` to the same address ends
        it: people see the answer once.
        """

    async def react(self, address: Address, platform_id: str, *, seen: bool) -> None:
        """Mark a message as seen, or take the mark back; best effort, never raises for platform errors."""

    def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes of a file, in pieces; raises `FetchFailed` or `FetchDelayed`, also in the middle."""

    async def close(self) -> None:
        """Let go of every socket."""


@dataclass(frozen=True, slots=True)
class WebhookReply:
    """The answer to the platform's HTTP request."""

    status: int
    text: str = ""


@runtime_checkable
class WebhookChannel(Protocol):
    """A channel that can also be pushed to over HTTP (`POST /webhook/<name>`)."""

    def refuses(self, headers: Mapping[str, str]) -> WebhookReply | None:
        """Why the body of a request with these headers is not read, such as a wrong secret (401); None if it is."""

    async def deliver(self, body: bytes) -> WebhookReply:
        """Accept the update of a request that was not refused; answer only once it is committed."""


@runtime_checkable
class ProbedChannel(Protocol):
    """A channel whose credentials can be tried beside a gateway that is using them, for `supaclaw doctor --live`."""

    async def probe(self) -> str:
        """Our name on the platform, such as "@bot". Called instead of `open`, then comes `close`.

        Takes nothing in and disturbs no other connection; raises `SupaclawError` when the platform does not know us.
        """


@runtime_checkable
class ExclusiveChannel(Protocol):
    """A channel whose messages only one program can receive."""

    async def check_unused(self) -> None:
        """Raise `SupaclawError` if another program receives; called after `probe`, never beside our own reception."""


@runtime_checkable
class DeepLinkChannel(Protocol):
    """A channel whose platform has addresses that open a chat with us."""

    def deep_link(self, code: str) -> str:
        """The address that also hands over the code, which is its end; "" while our name there is not known."""


@dataclass(frozen=True, slots=True)
class Login:
    """How far a person has come with connecting us to their own account on a platform.

    `qr` is what a QR code has to say, `code` what has to be typed on the phone; both change while they wait.
    """

    state: Literal["starting", "waiting", "connected", "logged out"]
    account: str = ""
    qr: str = ""
    code: str = ""
    problem: str = ""


@runtime_checkable
class LoginChannel(Protocol):
    """A channel that a person connects by a QR code or a code typed on the phone."""

    def login(self) -> Login:
        """The current state; without an account, fetches a code to show."""

    async def request_code(self, phone: str) -> str:
        """A code to type on the phone with this number (digits, with the country); raises `OwnerMustAct`."""

    async def logout(self) -> None:
        """Unlink this device and forget the account; a new login starts. Raises `OwnerMustAct`."""
