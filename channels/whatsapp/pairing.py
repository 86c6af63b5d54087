"""How far a person has come with linking this device, and how long to wait for what."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from random import uniform
from time import monotonic

from channels.whatsapp.sdk import reach
from channels.whatsapp.store import Store
from gateway.domain.channels.channel import Login

LOGIN_ADVICE = "run `supaclaw channel login whatsapp`"
LONGEST_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class LinkTimeouts:
    """How long to wait, in seconds; `first_code` and `next_code` are whatsmeow's (`qrchan.go`), a little longer."""

    first_code: float = 63.0
    next_code: float = 23.0
    asked: float = 180.0
    """How long after the last look at a login somebody may still be waiting for it."""
    ping: float = 120.0
    """How long nothing may be heard before WhatsApp is asked for an answer."""
    stop: float = 5.0
    """How long Go may take to end a session; while it shows codes it never does."""
    look: float = 1.0
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    reach: Callable[[], Awaitable[None]] = reach
    """Ends at once where trying makes sense; raises `OSError` where it does not."""

    async def after(self, failures: int, longest: float = LONGEST_PAUSE) -> None:
        """Wait after so many failures in a row; up to a half is left to chance."""
        longest = min(longest, 2.0 ** min(failures, 6))
        await self.pause(uniform(longest / 2, longest))


class Pairing:
    """Which account we are linked to, or the codes to link one; nothing is asked of WhatsApp until somebody looks."""

    def __init__(self, store: Store, patience: LinkTimeouts) -> None:
        self._store = store
        self._patience = patience
        self._asked_at = -inf
        self._asked = asyncio.Event()
        self._rest_until = self._qr_until = 0.0
        self.us = store.account()
        self.qr = self.code = self.problem = ""
        self.connected = asyncio.Event()
        self.shown = asyncio.Event()
        """WhatsApp has a QR code: then it can also be asked for a code to type."""

    def ask(self) -> None:
        """Somebody wants to log in."""
        self._asked_at = monotonic()
        self._asked.set()

    async def may_begin(self) -> None:
        """Return when there is a reason for a session: an account, or somebody who waits for one."""
        await asyncio.sleep(max(0.0, self._rest_until - monotonic()))
        if self.us is None and monotonic() - self._asked_at > self._patience.asked:
            self._asked.clear()
            await self._asked.wait()

    @property
    def idle(self) -> bool:
        """Nothing is asked of WhatsApp, so nothing can be heard."""
        return monotonic() < self._rest_until or not (self.us or self._asked.is_set())

    def rest(self, seconds: float) -> None:
        """Try nothing for so long; what was asked for is over."""
        self._rest_until = monotonic() + seconds
        self._asked_at = -inf
        self._asked.clear()

    def show(self, qr: str) -> None:
        """The next QR code."""
        self._qr_until = monotonic() + (self._patience.next_code if self.qr else self._patience.first_code)
        self.qr, self.problem = qr, ""
        self.shown.set()

    @property
    def expired(self) -> bool:
        """The last code was not used in time."""
        return bool(self.qr) and monotonic() > self._qr_until

    def over(self, problem: str = "") -> None:
        """The codes are used, or of no use any more, and there is no connection yet."""
        self.qr = self.code = ""
        self.problem = problem
        self.shown.clear()
        self.connected.clear()

    def succeed(self) -> None:
        """There is a connection."""
        self.over()
        if self.us is not None:
            self._store.remember(self.us)
        self.connected.set()

    def forget(self) -> None:
        """There is no account any more."""
        self.us = None
        self._store.forget()

    def login(self) -> Login:
        """How it stands."""
        number = self.us.number if self.us is not None else ""
        if self.connected.is_set():
            return Login("connected", account=number)
        if self.qr:
            return Login("waiting", qr=self.qr, code=self.code)
        if number or self._asked.is_set():
            return Login("starting", account=number, problem=self.problem)
        return Login("logged out", problem=self.problem or LOGIN_ADVICE)
