"""neonize's client, with our own way to Go and back: both would else depend on the threads of one event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from ctypes import string_at
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TypeAlias
from uuid import uuid4

from google.protobuf.message import DecodeError, Message
from neonize import _binder
from neonize.aioze import events
from neonize.aioze.client import NewAClient
from neonize.events import EVENT_TO_INT, INT_TO_EVENT
from neonize.proto.waCompanionReg.WAWebProtobufsCompanionReg_pb2 import DeviceProps

from channels.whatsapp.store import GROUP, HIDDEN, PHONE, Spool

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

Told: TypeAlias = Message | bytes | Exception
"""An event, what a QR code has to say, or why something cannot be told."""

Tell: TypeAlias = Callable[[Told], None]
"""May be called from any thread; must not raise."""


def client(session: Path, spool: Spool, tell: Tell) -> NewAClient:
    """A client of its own name, under which Go knows it; neonize's own would tell the first event loop there was."""
    props = DeviceProps(os="SupaClaw", platformType=DeviceProps.CHROME)
    made = NewAClient(f"{session}?{_SQLITE}", uuid=uuid4().hex, props=props)
    made.event = _Hearing(made, spool, tell)
    vars(made)["_NewAClient__client"] = _Library()
    vars(made)["_NewAClient__onQr"] = lambda _uuid, code: tell(string_at(code))
    return made


class _Hearing(events.Event):
    """Keeps messages on disk before Go is told that we have them, on Go's thread, and passes everything on."""

    def __init__(self, client: NewAClient, spool: Spool, tell: Tell) -> None:
        super().__init__(client)
        self.list_func = {EVENT_TO_INT[kind]: _told for kind in _KINDS}
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


async def _told(_client: NewAClient, _event: Message) -> None:
    """Never called: `execute` passes events on itself. neonize asks Go for the kinds that have a handler."""


class _Library:
    """Go's functions; the call that lasts as long as the session gets a thread of its own.

    Go does not return from `Neonize` when it is stopped while it shows QR codes: a process whose event loop owns that
    thread would never end.
    """

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        call = getattr(_binder.gocode, name)
        return partial(_alone if name == "Neonize" else asyncio.to_thread, call)


def _alone(call: Callable[..., object], *arguments: object) -> asyncio.Future[object]:
    """The thread keeps `arguments`, which Go calls back, until Go is done with them."""
    done: Future[object] = Future()
    done.set_running_or_notify_cancel()
    Thread(target=lambda: done.set_result(call(*arguments)), name="whatsapp", daemon=True).start()
    return asyncio.wrap_future(done)
