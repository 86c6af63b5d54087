"""The link to WhatsApp: neonize's client with its own bridge to Go, and one session after another, forever."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from ctypes import string_at
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import TypeAlias
from uuid import uuid4

from google.protobuf.message import DecodeError, Message
from neonize import _binder
from neonize.aioze import events
from neonize.aioze.client import NewAClient
from neonize.events import EVENT_TO_INT, INT_TO_EVENT
from neonize.exc import NeonizeError
from neonize.proto.Neonize_pb2 import Device, PairStatus
from neonize.proto.waCompanionReg.WAWebProtobufsCompanionReg_pb2 import DeviceProps

from channels.whatsapp.pairing import LOGIN_ADVICE, LinkTimeouts, Pairing
from channels.whatsapp.store import GROUP, HIDDEN, MIN_FREE_BYTES, PHONE, LinkedAccount, Spool, Store, Timers
from gateway.domain.channels.platform import Logger
from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.texts import one_line

_KINDS = (
    events.ClientOutdatedEv,
    events.ConnectedEv,
    events.ConnectFailureEv,
    events.DisconnectedEv,
    events.LoggedOutEv,
    events.MessageEv,
    events.PairStatusEv,
    events.StreamReplacedEv,
    events.TemporaryBanEv,
)
"""The events that Go sends. The history of an account is left out: old messages start no turns."""

_SQLITE = "_journal_mode=WAL&_synchronous=FULL&_foreign_keys=on&_="
"""If keys can't be read for five seconds, a message is lost: a backup must not block them, nor a power cut lose them.

neonize appends `?_foreign_keys=on`, which becomes the value of the last parameter.
"""

ClientEvent: TypeAlias = Message | bytes | Exception
"""An event, the content of a QR code, or an error."""

EventHandler: TypeAlias = Callable[[ClientEvent], None]
"""Is called from any thread; must not raise."""


def new_client(session: Path, spool: Spool, post: EventHandler) -> NewAClient:
    """A client with a unique name for Go. It posts events itself: neonize would post them to the first event loop."""
    props = DeviceProps(os="SupaClaw", platformType=DeviceProps.CHROME)
    made = NewAClient(f"{session}?{_SQLITE}", uuid=uuid4().hex, props=props)
    made.event = _EventReceiver(made, spool, post)
    vars(made)["_NewAClient__client"] = _Library()
    vars(made)["_NewAClient__onQr"] = lambda _uuid, code: post(string_at(code))
    return made


class _EventReceiver(events.Event):
    """Stores messages before Go acknowledges them, on Go's thread, and posts every event."""

    def __init__(self, client: NewAClient, spool: Spool, post: EventHandler) -> None:
        super().__init__(client)
        self.list_func = {EVENT_TO_INT[kind]: _unused_handler for kind in _KINDS}
        self._spool = spool
        self._post_event = post

    def execute(self, uuid: int, binary: int, size: int, code: int) -> None:
        """Receive the bytes of an event from Go; `code` 0 is the device itself."""
        del uuid
        data = string_at(binary, size)
        try:
            event = INT_TO_EVENT[code].FromString(data)
        except (KeyError, DecodeError) as error:
            self._post_event(error)
            return
        if not isinstance(event, events.MessageEv) or self._spooled(event, data):
            self._post_event(event)

    def _spooled(self, event: events.MessageEv, data: bytes) -> bool:
        """Store a message, and wait while spool or disk are full: WhatsApp keeps further messages meanwhile."""
        if event.Info.MessageSource.Chat.Server not in {PHONE, HIDDEN, GROUP}:
            return False
        while True:
            try:
                self._spool.put(data)
            except OSError as error:
                if self._spool.closed.is_set():
                    return False
                self._post_event(error)
                self._spool.closed.wait(1.0)
            else:
                return True


async def _unused_handler(_client: NewAClient, _event: Message) -> None:
    """Never called, since `execute` posts events itself; neonize requests the kinds of events that have a handler."""


class _Library:
    """Go's functions; `Neonize`, which lasts as long as the session, runs in a daemon thread of its own.

    It does not return if it is stopped while it shows QR codes, so a thread of the event loop would block the exit.
    """

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        return partial(_in_own_thread if name == "Neonize" else asyncio.to_thread, getattr(_binder.gocode, name))


def _in_own_thread(call: Callable[..., object], *arguments: object) -> asyncio.Future[object]:
    """Run a call in a thread, which references `arguments` for as long as Go may call them."""
    done: Future[object] = Future()
    done.set_running_or_notify_cancel()
    Thread(target=lambda: done.set_result(call(*arguments)), name="whatsapp", daemon=True).start()
    return asyncio.wrap_future(done)


CODE_SECONDS = 30.0
HOUR, SIX_HOURS, DAY = 3600.0, 21_600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """Why a session ended, for the owner; "" if it was meant to end."""

    problem: str
    retry_after: float | None = None
    """Seconds without a new session, because the owner must act; None: a new session starts by itself."""


UNLINKED = SessionEnd(f"WhatsApp has unlinked this device; to link it again {LOGIN_ADVICE}", retry_after=0.0)

FULL = SessionEnd(f"WhatsApp waits until {MIN_FREE_BYTES // 2**20} MB are free on the disk of the data folder")


class Link:
    """Starts sessions as soon as it is built; `arrived` is set with every message."""

    def __init__(self, store: Store, pairing: Pairing, log: Logger, timeouts: LinkTimeouts) -> None:
        self._logger = log
        self._store = store
        self._pinged_at = 0.0
        self._trouble = ""
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Future[SessionEnd] = self._loop.create_future()
        self.pairing = pairing
        self.timeouts = timeouts
        self.arrived = asyncio.Event()
        self.heard_at: float | None = None
        self.spool = Spool(store.spool)
        self.timers = Timers(store.timers)
        self.client = new_client(store.session, self.spool, self._post_event)
        self.running = asyncio.create_task(self._run(), name="whatsapp link")
        """Raises `OwnerMustAct` if a new session can't help."""

    async def request_code(self, number: str) -> str:
        """Request a code to type on the phone, once WhatsApp is ready; raises `OwnerMustAct`."""
        try:
            async with asyncio.timeout(CODE_SECONDS):
                await self.pairing.shown.wait()
                self.pairing.code = str(await self.client.PairPhone(number, True))
        except TimeoutError:
            raise OwnerMustAct(self._trouble or "WhatsApp offers no code right now; try again") from None
        except NeonizeError as error:
            raise OwnerMustAct(f"WhatsApp gives no code for {number}: {one_line(str(error), 300)}") from error
        return self.pairing.code

    async def logout(self) -> None:
        """Unlink this device; raises `OwnerMustAct`."""
        try:
            await self.client.logout()
        except NeonizeError as error:
            raise OwnerMustAct(f"WhatsApp does not answer: {one_line(str(error), 300)}") from error
        self.pairing.forget()
        self._end(SessionEnd(""))

    async def close(self) -> None:
        """End the session; the spool stays on disk."""
        self.spool.closed.set()
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            await self.pairing.wait_until_wanted()
            try:
                await self.timeouts.reach()
                end = await self._session()
            except OSError as error:
                end = SessionEnd(f"WhatsApp cannot be reached: {error or type(error).__name__}")
            if end is UNLINKED:
                self.pairing.forget()
            self.pairing.reset(end.problem)
            if end.retry_after is not None:
                self.pairing.pause(end.retry_after)
                raise OwnerMustAct(end.problem)
            failures = failures + 1 if self._trouble else 0
            if end.problem:
                self._report(end.problem)
                await self.timeouts.after(failures)

    async def _session(self) -> SessionEnd:
        """Run one session, from connecting to its end."""
        if not self._store.has_room:
            return FULL
        self._ending = self._loop.create_future()
        go = await self.client.connect()
        watch = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({go, watch, self._ending}, return_when=asyncio.FIRST_COMPLETED)
            if self._ending.done():
                return self._ending.result()
            return _end_by_error(go.exception()) if go.done() else watch.result()
        finally:
            self._end(SessionEnd(""))
            self.pairing.reset()
            watch.cancel()
            await self.client.stop()
            await asyncio.wait({go}, timeout=self.timeouts.stop)  # Go may use its callbacks until then
            go.cancel()
            await asyncio.gather(go, return_exceptions=True)

    async def _watch(self) -> SessionEnd:
        """Ping a silent connection: neonize reports no answered keep-alives. Return if the session must end."""
        while not self.pairing.expired:
            await asyncio.sleep(self.timeouts.look)
            if not self._store.has_room:
                return FULL
            quiet_since = max(self.heard_at or 0.0, self._pinged_at)
            if self.pairing.connected.is_set() and monotonic() - quiet_since > self.timeouts.ping:
                self._pinged_at = monotonic()
                with suppress(NeonizeError):
                    await self.client.set_passive(False)  # used as a ping: it changes nothing
                    self.heard_at = monotonic()
        return SessionEnd("")

    def _post_event(self, event: ClientEvent) -> None:
        """Post an event to the loop, from any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_event, event)

    def _on_event(self, event: ClientEvent) -> None:
        if isinstance(event, Exception):
            self._logger.warning("whatsapp.not_taken", why=f"{type(event).__name__}: {event}"[:200])
        elif isinstance(event, events.MessageEv):
            self.heard_at = monotonic()
            self.arrived.set()
        elif self._ending.done():  # events from Go while the session stops
            return
        elif isinstance(event, events.DisconnectedEv):
            self._report("the connection to WhatsApp was lost; reconnecting")
        else:
            self.heard_at = monotonic()
            self._on_connection_event(event)

    def _on_connection_event(self, event: Message | bytes) -> None:
        match event:
            case bytes():
                self.pairing.show(event.decode())
            case Device() if event.JID.User:  # the first event
                self.pairing.account = LinkedAccount(event.JID.User, event.LID.User, event.JID.Device)
            case events.ConnectedEv():
                if self._trouble:
                    self._logger.info("whatsapp.recovered")
                self._trouble = ""
                self.pairing.succeed()
            case events.PairStatusEv() if event.Status == PairStatus.ERROR:
                self._end(SessionEnd(f"the login failed: {event.Error[:200]}"))
            case events.PairStatusEv():
                self.pairing.reset()
            case _ if end := _session_end(event):
                self._end(end)

    def _end(self, end: SessionEnd) -> None:
        if not self._ending.done():
            self._ending.set_result(end)

    def _report(self, trouble: str) -> None:
        """Log a trouble once until it is over."""
        if not self._trouble:
            self._logger.warning("whatsapp.trouble", why=trouble)
        self._trouble = trouble
        self.pairing.reset(trouble)


def _session_end(event: Message) -> SessionEnd | None:
    """Why an event ends the session; None if it doesn't."""
    match event:
        case events.LoggedOutEv():
            return UNLINKED
        case events.StreamReplacedEv():
            why = "another program took over this WhatsApp session; stop it, then restart the gateway"
            return SessionEnd(why, HOUR)
        case events.TemporaryBanEv():
            return _banned(event.Expire)
        case events.ClientOutdatedEv():
            return SessionEnd("WhatsApp no longer accepts this version; update supaclaw, then restart it", SIX_HOURS)
        case events.ConnectFailureEv():
            return SessionEnd(f"WhatsApp refuses the connection: {event.Message[:200] or event.Reason}")
        case _:
            return None


def _banned(seconds: float) -> SessionEnd:
    """The end by a ban; 0 `seconds` if WhatsApp doesn't say how long it lasts."""
    seconds = seconds if seconds > 0 else DAY
    hours = max(1, round(seconds / HOUR))
    cure = "open WhatsApp on the phone, see why, and let the agent write less"
    return SessionEnd(f"WhatsApp has banned this number for {hours} h; {cure}", seconds)


def _end_by_error(error: BaseException | None) -> SessionEnd:
    """The end by an error in Go, which names bans and logouts of unknown reasons only in its text."""
    text = one_line(str(error or "the session ended"), 300)
    if "neonize.LoggedOut" in text:
        return UNLINKED
    return _banned(0) if "neonize.TemporaryBan" in text else SessionEnd(text)
