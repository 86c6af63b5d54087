"""The state that all routes share, the rights of open requests, and how a message from a client is accepted."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import uuid4

import structlog
from cachetools import FIFOCache
from fastapi import Depends, Path, Request
from fastapi.responses import Response

from gateway.beside import cancel
from gateway.domain.channels.routing import Ignore
from gateway.domain.conversation.inbound import Address, Attachment, Inbound, Sender
from gateway.domain.conversation.tools import Caller
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import SessionId, TaskId
from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.domain.time import Clock
from gateway.flow.inbound.persistence import Accepted
from gateway.flow.secrets.guard import cleaned
from gateway.flow.signals import Wakeup
from gateway.store.connection.pool import Database
from gateway.store.delivery.inbox import kind_of
from gateway.store.people import tokens
from gateway.store.people.tokens import LiveToken
from gateway.store.trust import audit
from gateway.store.trust.audit import Event
from gateway.web.backend import Backend
from gateway.web.http.errors import Refused
from gateway.web.http.limits import CredentialLookups, RateLimiter, Throttle
from gateway.web.live.conversations import Conversations
from gateway.web.live.sse import Boards
from gateway.web.live.topics import Topics
from gateway.web.pages import Pages, Screen

if TYPE_CHECKING:
    from mcp.server.auth.provider import AuthorizationCode

LOOK_SECONDS = 0.8
"""Between two checks while something is open: no notification comes for an expiry, nor through a pooler."""
_NOTHING_OPEN = 3600.0
_CODES = 20
_SETTLE = 0.05

log = structlog.get_logger(__name__)


class Rights:
    """The streams and waits that are open, each with the credential that opened it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._open: dict[asyncio.Event, LiveToken | None] = {}
        self._changed = Wakeup()
        self._stopped = False

    @contextmanager
    def hold(self, token: LiveToken | None) -> Iterator[asyncio.Event]:
        """An event, set when the token loses a right or the gateway stops; the local token (None) loses none."""
        ended = asyncio.Event()
        if self._stopped:
            ended.set()
        self._open[ended] = token
        self._changed.set()  # it may have been revoked since the request was authenticated
        try:
            yield ended
        finally:
            del self._open[ended]

    def look_again(self) -> None:
        """Check now: somebody's rights have changed."""
        self._changed.set()

    async def serve(self, stopping: asyncio.Event) -> None:
        """End each that has lost its right until `stopping` is set, then all."""
        following = asyncio.create_task(self._follow(), name="follow rights")
        try:
            await stopping.wait()
        finally:
            self._stopped = True
            following.cancel()
            for ended in self._open:
                ended.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait(LOOK_SECONDS if self._open else _NOTHING_OPEN)
            self._changed.clear()
            try:
                await self._look()
            except TryAgainLater as exc:
                log.info("rights.database", error=str(exc))
            except Exception:  # the next look may work
                log.exception("rights.broken")
            await asyncio.sleep(_SETTLE)

    async def _look(self) -> None:
        held = {ended: token for ended, token in self._open.items() if token is not None}
        live_tokens = await tokens.live(self._database, {token.id for token in held.values()}) if held else {}
        now = self._clock.now()
        for ended, token in held.items():
            if not ((live := live_tokens.get(token.id)) and live.entitles(token, now)):
                ended.set()


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(Backend):
    """The state that all routes share, one per app: the gateway's parts and the state of the web app.

    `stopping` ends every open stream.
    """

    conversations: Conversations
    topics: Topics
    pages: Pages
    throttle: Throttle
    rate_limiter: RateLimiter
    nav: tuple[Screen, ...]
    rights: Rights
    boards: Boards = field(default_factory=Boards)
    lookups: CredentialLookups = field(default_factory=CredentialLookups)
    oauth_codes: FIFOCache[str, "AuthorizationCode"] = field(default_factory=lambda: FIFOCache(_CODES))
    """Those that clients of `/mcp` haven't exchanged yet."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def owner_as_sender(self) -> Sender:
        """The owner as the sender of messages; `Caller.as_owner` says how far the credential is trusted."""
        return Sender("owner", self.owner.name)

    @property
    def zone(self) -> str | None:
        """The owner's time zone; None: not set."""
        return self.chat.zones.zone_of(self.owner.id)

    def clean(self, text: str) -> str:
        """`text` of a program or a form, with live secrets replaced by their names."""
        return cleaned(self.health.mask.leaks, "web", text)

    def screen(self, request: Request, screen: Screen, template: str, **shown: object) -> Response:
        """Render a screen's page."""
        shown = {"title": screen.label, "nav": self.nav, "here": screen.path, "commands": self.chat.commands, **shown}
        return self.pages.page(request, template, **shown)

    async def config_written(self, text: str) -> None:
        """Audit a change of config.json, which is not in the database."""
        owner = self.owner.id
        await self.database.run(lambda tx: audit.note(tx, Event.CONFIG_WRITTEN, principal=owner, by="web", detail=text))

    async def while_entitled(self, work: Coroutine[Any, Any, Result], token: LiveToken | None) -> Result:
        """Await `work` for up to a whole turn; raises `Refused` if the gateway stops or the credential ends first."""
        with self.rights.hold(token) as ended:
            done, end = asyncio.ensure_future(work), asyncio.ensure_future(ended.wait())
            try:
                await asyncio.wait({done, end}, return_when=asyncio.FIRST_COMPLETED)
                if done.done():
                    return done.result()
                raise _unanswered(restarting=self.stopping.is_set())
            finally:
                await cancel(done, end)


def _unanswered(*, restarting: bool) -> Refused:
    if not restarting:
        return Refused(401, "invalid_api_key", "The token was revoked, has expired or lost a right while you waited.")
    # without a key, a client that retries automatically would send the message twice
    message = "The gateway is restarting and still working on the answer. Retry with the same Idempotency-Key."
    return Refused(503, "restarting", message, headers={"x-should-retry": "false"})


def site_of(request: Request) -> Site:
    """The site that serves this request."""
    site: Site = request.app.state.site
    return site


AtSite = Annotated[Site, Depends(site_of)]
RowId = Annotated[int, Path(ge=1, lt=2**63)]
"""The number of a row, in a path."""


MAX_MESSAGE_CHARS = 2_000_000
"""The most characters of one message; text too long for a model is stored as a file."""

PRINTABLE = r"^[^\x00-\x1f\x7f]+$"
"""Names chosen by clients: any printable text."""


async def accept(site: Site, inbound: Inbound) -> Accepted:
    """Wait for the commit, even through a database outage; raises `TryAgainLater`, and `Refused` on a stop."""
    [accepted] = await site.chat.inbox.accept([inbound])
    if accepted.later is not None:
        accepted = await site.while_entitled(accepted.stored(), None)
    site.conversations.notify_accepted()
    return accepted


async def accept_from_owner(
    site: Site, at: Address, text: str, client_id: str, files: tuple[Attachment, ...] = (), *, trusted: bool = True
) -> Accepted:
    """Accept a private message of the owner, like `accept`; `trusted` says whether its credential speaks as them."""
    sent = Inbound(at, site.owner_as_sender, text, client_id, site.clock.now(), private=True, as_owner=trusted)
    return await accept(site, replace(sent, attachments=files))


def accepted_json(accepted: Accepted) -> dict[str, Json]:
    """The outcome as JSON; `reason` is included if the message was ignored."""
    session = str(accepted.session_id) if accepted.session_id else None
    ids = {name: getattr(accepted, name) for name in ("message_id", "inbox_id", "duplicate")}
    facts = {"session_id": session, **ids}
    if isinstance(accepted.decision, Ignore):
        return {"kind": "ignored", **facts, "reason": accepted.decision.reason}
    return {"kind": kind_of(accepted.decision), **facts}


def program_run() -> Caller:
    """The run of a program's request to tools: it has no task, so no other process can take it over."""
    return Caller(TaskId(uuid4()), 0, SessionId(uuid4()), None, Label.UNTRUSTED, _no_fence, _no_fence)


async def _no_fence() -> None:
    """Hold nothing up."""
