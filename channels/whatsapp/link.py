"""The link to WhatsApp: one session after the other, for ever; neonize's own task dies of the first trouble."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from google.protobuf.message import Message
from neonize.aioze import events
from neonize.exc import NeonizeError
from neonize.proto.Neonize_pb2 import Device, PairStatus

from channels.whatsapp.client import Told, client
from channels.whatsapp.pairing import CURE, Pairing, Patience
from channels.whatsapp.sdk import one_line
from channels.whatsapp.store import ROOM, Spool, Store, Us
from gateway.domain.channels.platform import Logger
from gateway.domain.errors import OwnerMustAct

CODE_SECONDS = 30.0
HOUR, SIX_HOURS, DAY = 3600.0, 21_600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a session ended, in words for the owner; "" when that is as it should be."""

    problem: str
    rest: float | None = None
    """Only the owner can mend it, and nothing is tried for so many seconds; None: it is tried again."""


UNLINKED = Ending(f"WhatsApp has unlinked this device; to link it again {CURE}", rest=0.0)

FULL = Ending(f"WhatsApp waits until {ROOM // 2**20} MB are free on the disk of the data folder")


class Link:
    """Begins at once; `arrived` is set with every message."""

    def __init__(self, store: Store, pairing: Pairing, log: Logger, patience: Patience) -> None:
        self._logger = log
        self._store = store
        self._pinged_at = 0.0
        self._trouble = ""
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Future[Ending] = self._loop.create_future()
        self.pairing = pairing
        self.patience = patience
        self.arrived = asyncio.Event()
        self.heard_at: float | None = None
        self.spool = Spool(store.spool)
        self.client = client(store.session, self.spool, self._tell)
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
        self._end(Ending(""))

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
                end = Ending(f"WhatsApp cannot be reached: {error or type(error).__name__}")
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

    async def _session(self) -> Ending:
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
            return _given_up(go.exception()) if go.done() else watch.result()
        finally:
            self._end(Ending(""))
            self.pairing.over()
            watch.cancel()
            await self.client.stop()
            await asyncio.wait({go}, timeout=self.patience.stop)  # until Go has let go, its callbacks must stay
            go.cancel()
            await asyncio.gather(go, return_exceptions=True)

    async def _watch(self) -> Ending:
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
        return Ending("")

    def _tell(self, told: Told) -> None:
        """Go's threads come in here."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._hear, told)

    def _hear(self, told: Told) -> None:
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
                self.pairing.us = Us(told.JID.User, told.LID.User, told.JID.Device)
            case events.ConnectedEv():
                if self._trouble:
                    self._logger.info("whatsapp.recovered")
                self._trouble = ""
                self.pairing.succeed()
            case events.PairStatusEv() if told.Status == PairStatus.ERROR:
                self._end(Ending(f"the login failed: {told.Error[:200]}"))
            case events.PairStatusEv():
                self.pairing.over()
            case _ if end := _ending(told):
                self._end(end)

    def _end(self, end: Ending) -> None:
        if not self._ending.done():
            self._ending.set_result(end)

    def _report(self, trouble: str) -> None:
        """Logged once, until it is over."""
        if not self._trouble:
            self._logger.warning("whatsapp.trouble", why=trouble)
        self._trouble = trouble
        self.pairing.over(trouble)


def _ending(event: Message) -> Ending | None:
    """None when the session goes on."""
    match event:
        case events.LoggedOutEv():
            return UNLINKED
        case events.StreamReplacedEv():
            return Ending("another program took over this WhatsApp session; stop it, then restart the gateway", HOUR)
        case events.TemporaryBanEv():
            return _banned(event.Expire)
        case events.ClientOutdatedEv():
            return Ending("WhatsApp no longer accepts this version; update supaclaw, then restart it", SIX_HOURS)
        case events.ConnectFailureEv():
            return Ending(f"WhatsApp refuses the connection: {event.Message[:200] or event.Reason}")
        case _:
            return None


def _banned(seconds: float) -> Ending:
    """How long the ban lasts is told in most cases."""
    seconds = seconds if seconds > 0 else DAY
    hours = max(1, round(seconds / HOUR))
    cure = "open WhatsApp on the phone, see why, and let the agent write less"
    return Ending(f"WhatsApp has banned this number for {hours} h; {cure}", seconds)


def _given_up(error: BaseException | None) -> Ending:
    """Go ended the session itself. It cannot pass on a ban or a logout whose reason it does not know."""
    text = one_line(error or "the session ended")
    if "neonize.LoggedOut" in text:
        return UNLINKED
    return _banned(0) if "neonize.TemporaryBan" in text else Ending(text)
