"""The state of linking this device, and the timeouts of the link."""

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
    """Seconds; `first_code` and `next_code` are a little longer than whatsmeow's (`qrchan.go`)."""

    first_code: float = 63.0
    next_code: float = 23.0
    interest: float = 180.0
    """A look at the login counts as interest in it for this long."""
    ping: float = 120.0
    """Silence before a ping."""
    stop: float = 5.0
    """The longest wait for Go to end a session; while it shows codes it never ends one."""
    look: float = 1.0
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    reach: Callable[[], Awaitable[None]] = reach
    """Raises `OSError` if WhatsApp can't be reached."""

    async def after(self, failures: int, longest: float = LONGEST_PAUSE) -> None:
        """Wait after this many failures in a row: exponentially, with jitter of up to a half."""
        longest = min(longest, 2.0 ** min(failures, 6))
        await self.pause(uniform(longest / 2, longest))


LINK_TIMEOUTS = LinkTimeouts()


class Pairing:
    """The linked account, or the codes to link one; codes are requested only while somebody looks at the login."""

    def __init__(self, store: Store, timeouts: LinkTimeouts) -> None:
        self._store = store
        self._timeouts = timeouts
        self._wanted_at = -inf
        self._wanted = asyncio.Event()
        self._paused_until = self._qr_until = 0.0
        self.account = store.account()
        self.qr = self.code = self.problem = ""
        self.connected = asyncio.Event()
        self.shown = asyncio.Event()
        """Set while there is a QR code; then a code to type can be requested, too."""

    def note_interest(self) -> None:
        """Note that somebody waits for a login."""
        self._wanted_at = monotonic()
        self._wanted.set()

    async def wait_until_wanted(self) -> None:
        """Wait until there is a reason for a session: an account, or somebody who waits for a login."""
        await asyncio.sleep(max(0.0, self._paused_until - monotonic()))
        if self.account is None and monotonic() - self._wanted_at > self._timeouts.interest:
            self._wanted.clear()
            await self._wanted.wait()

    @property
    def idle(self) -> bool:
        """Whether no session is wanted now, so that silence is expected."""
        return monotonic() < self._paused_until or not (self.account or self._wanted.is_set())

    def pause(self, seconds: float) -> None:
        """Start no session for this long, and forget that somebody waited for a login."""
        self._paused_until = monotonic() + seconds
        self._wanted_at = -inf
        self._wanted.clear()

    def show(self, qr: str) -> None:
        """Show the next QR code."""
        self._qr_until = monotonic() + (self._timeouts.next_code if self.qr else self._timeouts.first_code)
        self.qr, self.problem = qr, ""
        self.shown.set()

    @property
    def expired(self) -> bool:
        """Whether the last code was not used in time."""
        return bool(self.qr) and monotonic() > self._qr_until

    def reset(self, problem: str = "") -> None:
        """Drop codes and connection, because of `problem` if there is one."""
        self.qr = self.code = ""
        self.problem = problem
        self.shown.clear()
        self.connected.clear()

    def succeed(self) -> None:
        """Note the connection, and store its account."""
        self.reset()
        if self.account is not None:
            self._store.remember(self.account)
        self.connected.set()

    def forget(self) -> None:
        """Forget the account."""
        self.account = None
        self._store.forget()

    def login(self) -> Login:
        """The state of the login, for people."""
        number = self.account.number if self.account is not None else ""
        if self.connected.is_set():
            return Login("connected", account=number)
        if self.qr:
            return Login("waiting", qr=self.qr, code=self.code)
        if number or self._wanted.is_set():
            return Login("starting", account=number, problem=self.problem)
        return Login("logged out", problem=self.problem or LOGIN_ADVICE)
