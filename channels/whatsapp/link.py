"""The link to WhatsApp: neonize's client with our own way to Go and back, and one session after the other, forever."""

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
from channels.whatsapp.sdk import one_line
from channels.whatsapp.store import GROUP, HIDDEN, MIN_FREE_BYTES, PHONE, LinkedAccount, Spool, Store
from gateway.domain.channels.platform import Logger
from gateway.domain.errors import OwnerMustAct

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
"""What Go is asked for. The history of an account is not: old talk starts no turns."""

_SQLITE = "_journal_mode=WAL&_synchronous=FULL&_foreign_keys=on&_="
"""Keys that cannot be read for five seconds cost a message, so a backup must not block them, nor a power cut lose them.

neonize appends `?_foreign_keys=on`, which the last parameter swallows.
"""

ClientEvent: TypeAlias = Message | bytes | Exception
"""An event, what a QR code has to say, or why something cannot be told."""

EventHandler: TypeAlias = Callable[[ClientEvent], None]
"""May be called from any thread; must not raise."""


def new_client(session: Path, spool: Spool, tell: EventHandler) -> NewAClient:
    """A client of its own name, under which Go knows it; neonize's own would tell the first event loop there was."""
    props = DeviceProps(os="SupaClaw", platformType=DeviceProps.CHROME)
    made = NewAClient(f"{session}?{_SQLITE}", uuid=uuid4().hex, props=props)
    made.event = _EventReceiver(made, spool, tell)
    vars(made)["_NewAClient__client"] = _Library()
    vars(made)["_NewAClient__onQr"] = lambda _uuid, code: tell(string_at(code))
    return made


class _EventReceiver(events.Event):
    """Keeps messages on disk before Go is told that we have them, on Go's thread, and passes everything on."""

    def __init__(self, client: NewAClient, spool: Spool, tell: EventHandler) -> None:
        super().__init__(client)
        self.list_func = {EVENT_TO_INT[kind]: _unused_handler for kind in _KINDS}
        self._spool = spool
        self._tell = tell

    def execute(self, uuid: int, binary: int, size: int, code: int) -> None:
        """Called by Go with the bytes of an event; `code` 0 is the device itself."""
        del uuid
        data = string_at(binary, size)
        try:
            event = INT_TO_EVENT[code].FromString(data)
        except (KeyError, DecodeError) as error:
            self._tell(error)
            return
        if not isinstance(event, events.MessageEv) or self._kept(event, data):
            self._tell(event)

    def _kept(self, event: events.MessageEv, data: bytes) -> bool:
        """A full spool or disk is waited for: meanwhile WhatsApp keeps what follows."""
        if event.Info.MessageSource.Chat.Server not in {PHONE, HIDDEN, GROUP}:
            return False
        while True:
            try:
                self._spool.put(data)
            except OSError as error:
                if self._spool.closed.is_set():
                    return False
                self._tell(error)
                self._spool.closed.wait(1.0)
            else:
                return True


async def _unused_handler(_client: NewAClient, _event: Message) -> None:
    """Never called: `execute` passes events on itself. neonize asks Go for the kinds that have a handler."""


class _Library:
    """Go's functions; the call that lasts as long as the session gets a thread of its own.

    Go does not return from `Neonize` when it is stopped while it shows QR codes: a process whose event loop owns that
    thread would never end.
    """

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        call = getattr(_binder.gocode, name)
        return partial(_in_own_thread if name == "Neonize" else asyncio.to_thread, call)


def _in_own_thread(call: Callable[..., object], *arguments: object) -> asyncio.Future[object]:
    """The thread keeps `arguments`, which Go calls back, until Go is done with them."""
    done: Future[object] = Future()
    done.set_running_or_notify_cancel()
    Thread(target=lambda: done.set_result(call(*arguments)), name="whatsapp", daemon=True).start()
    return asyncio.wrap_future(done)


CODE_SECONDS = 30.0
HOUR, SIX_HOURS, DAY = 3600.0, 21_600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """Why a session ended, in words for the owner; "" when that is as it should be."""

    problem: str
    rest: float | None = None
    """Only the owner can mend it, and nothing is tried for so many seconds; None: it is tried again."""


UNLINKED = SessionEnd(f"WhatsApp has unlinked this device; to link it again {LOGIN_ADVICE}", rest=0.0)

FULL = SessionEnd(f"WhatsApp waits until {MIN_FREE_BYTES // 2**20} MB are free on the disk of the data folder")


class Link:
    """Begins at once; `arrived` is set with every message."""

    def __init__(self, store: Store, pairing: Pairing, log: Logger, patience: LinkTimeouts) -> None:
        self._logger = log
        self._store = store
        self._pinged_at = 0.0
        self._trouble = ""
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Future[SessionEnd] = self._loop.create_future()
        self.pairing = pairing
        self.patience = patience
        self.arrived = asyncio.Event()
        self.heard_at: float | None = None
        self.spool = Spool(store.spool)
        self.client = new_client(store.session, self.spool, self._tell)
        self.running = asyncio.create_task(self._run(), name="whatsapp link")
        """Raises `OwnerMustAct` when trying again cannot help."""

    async def request_code(self, number: str) -> str:
        """A code to type on the phone, once WhatsApp is ready for it; raises `OwnerMustAct`."""
        try:
            async with asyncio.timeout(CODE_SECONDS):
                await self.pairing.shown.wait()
                self.pairing.code = str(await self.client.PairPhone(number, True))
        except TimeoutError:
            raise OwnerMustAct(self._trouble or "WhatsApp offers no code right now; try again") from None
        except NeonizeError as error:
            raise OwnerMustAct(f"WhatsApp gives no code for {number}: {one_line(error)}") from error
        return self.pairing.code

    async def logout(self) -> None:
        """Unlink this device; raises `OwnerMustAct`."""
        try:
            await self.client.logout()
        except NeonizeError as error:
            raise OwnerMustAct(f"WhatsApp does not answer: {one_line(error)}") from error
        self.pairing.forget()
        self._end(SessionEnd(""))

    async def close(self) -> None:
        """End the session; what lies on disk stays there."""
        self.spool.closed.set()
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            await self.pairing.may_begin()
            try:
                await self.patience.reach()
                end = await self._session()
            except OSError as error:
                end = SessionEnd(f"WhatsApp cannot be reached: {error or type(error).__name__}")
            if end is UNLINKED:
                self.pairing.forget()
            self.pairing.over(end.problem)
            if end.rest is not None:
                self.pairing.rest(end.rest)
                raise OwnerMustAct(end.problem)
            failures = failures + 1 if self._trouble else 0
            if end.problem:
                self._report(end.problem)
                await self.patience.after(failures)

    async def _session(self) -> SessionEnd:
        """From connecting to the end, whatever it is."""
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
            self.pairing.over()
            watch.cancel()
            await self.client.stop()
            await asyncio.wait({go}, timeout=self.patience.stop)  # until Go has let go, its callbacks must stay
            go.cancel()
            await asyncio.gather(go, return_exceptions=True)

    async def _watch(self) -> SessionEnd:
        """Ask what is silent for an answer: neonize does not tell of the keep-alives that were answered."""
        while not self.pairing.expired:
            await asyncio.sleep(self.patience.look)
            if not self._store.has_room:
                return FULL
            quiet_since = max(self.heard_at or 0.0, self._pinged_at)
            if self.pairing.connected.is_set() and monotonic() - quiet_since > self.patience.ping:
                self._pinged_at = monotonic()
                with suppress(NeonizeError):
                    await self.client.set_passive(False)  # changes nothing
                    self.heard_at = monotonic()
        return SessionEnd("")

    def _tell(self, told: ClientEvent) -> None:
        """Go's threads come in here."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._hear, told)

    def _hear(self, told: ClientEvent) -> None:
        if isinstance(told, Exception):
            self._logger.warning("whatsapp.not_taken", why=f"{type(told).__name__}: {told}"[:200])
        elif isinstance(told, events.MessageEv):
            self.heard_at = monotonic()
            self.arrived.set()
        elif self._ending.done():  # the session is over, but Go has more to say while it stops
            return
        elif isinstance(told, events.DisconnectedEv):
            self._report("the connection to WhatsApp was lost; reconnecting")
        else:
            self.heard_at = monotonic()
            self._take(told)

    def _take(self, told: Message | bytes) -> None:
        match told:
            case bytes():
                self.pairing.show(told.decode())
            case Device() if told.JID.User:  # Go tells who we are before anything else
                self.pairing.us = LinkedAccount(told.JID.User, told.LID.User, told.JID.Device)
            case events.ConnectedEv():
                if self._trouble:
                    self._logger.info("whatsapp.recovered")
                self._trouble = ""
                self.pairing.succeed()
            case events.PairStatusEv() if told.Status == PairStatus.ERROR:
                self._end(SessionEnd(f"the login failed: {told.Error[:200]}"))
            case events.PairStatusEv():
                self.pairing.over()
            case _ if end := _session_end(told):
                self._end(end)

    def _end(self, end: SessionEnd) -> None:
        if not self._ending.done():
            self._ending.set_result(end)

    def _report(self, trouble: str) -> None:
        """Logged once, until it is over."""
        if not self._trouble:
            self._logger.warning("whatsapp.trouble", why=trouble)
        self._trouble = trouble
        self.pairing.over(trouble)


def _session_end(event: Message) -> SessionEnd | None:
    """None when the session goes on."""
    match event:
        case events.LoggedOutEv():
            return UNLINKED
        case events.StreamReplacedEv():
            return SessionEnd(
                "another program took over this WhatsApp session; stop it, then restart the gateway", HOUR
            )
        case events.TemporaryBanEv():
            return _banned(event.Expire)
        case events.ClientOutdatedEv():
            return SessionEnd("WhatsApp no longer accepts this version; update supaclaw, then restart it", SIX_HOURS)
        case events.ConnectFailureEv():
            return SessionEnd(f"WhatsApp refuses the connection: {event.Message[:200] or event.Reason}")
        case _:
            return None


def _banned(seconds: float) -> SessionEnd:
    """How long the ban lasts is told in most cases."""
    seconds = seconds if seconds > 0 else DAY
    hours = max(1, round(seconds / HOUR))
    cure = "open WhatsApp on the phone, see why, and let the agent write less"
    return SessionEnd(f"WhatsApp has banned this number for {hours} h; {cure}", seconds)


def _end_by_error(error: BaseException | None) -> SessionEnd:
    """Go ended the session itself. It cannot pass on a ban or a logout whose reason it does not know."""
    text = one_line(error or "the session ended")
    if "neonize.LoggedOut" in text:
        return UNLINKED
    return _banned(0) if "neonize.TemporaryBan" in text else SessionEnd(text)
