"""A request to a messenger's platform: its errors, the recovery from them, and the logger that a channel is given."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import uniform
from typing import Protocol

from gateway.domain.channels.channel import SendDelayed, SendFailed, SendUncertain
from gateway.domain.errors import SupaclawError


class Logger(Protocol):
    """Logs events of a plug-in; never pass it a secret."""

    def info(self, event: str, /, **facts: object) -> object:
        """A normal event."""

    def warning(self, event: str, /, **facts: object) -> object:
        """A problem that resolves itself."""

    def error(self, event: str, /, **facts: object) -> object:
        """A problem that the owner has to fix."""

    def exception(self, event: str, /, **facts: object) -> object:
        """A bug: logs the current exception with its traceback."""


LONGEST_WAIT = 3600.0
"""Seconds: a platform that asks for more is asked again once an hour."""


class PlatformError(SupaclawError):
    """A request came to nothing; the text never holds a token. `retry_after` None leaves the pause to `Recovery`."""

    trouble = "unreachable"
    owner_must_act = False
    retry_after: float | None = None


class Unreachable(PlatformError):
    """No request left this machine."""


class Unanswered(PlatformError):
    """The request left and no usable answer came back: it may have been carried out."""


class Undecidable(Unanswered):
    """It may have been carried out, and the platform will never tell."""


class TurnedAway(PlatformError):
    """It was not carried out, and the reason is not in what was asked for: the same may work later."""


class TooFast(TurnedAway):
    """A rate limit; the platform may name the seconds to wait."""

    def __init__(self, platform: str, retry_after: float | None) -> None:
        super().__init__(f"{platform} asks to wait" + (f" {retry_after:g} s" if retry_after else ""))
        self.retry_after = retry_after


class Refused(PlatformError):
    """The platform said no."""

    trouble = "refused"
    owner_must_act = True


class TokenRefused(PlatformError):
    """A token is wrong or was revoked; requests work again once the owner has replaced it."""

    trouble = "token_refused"
    owner_must_act = True
    retry_after = 30.0


def send_error(error: PlatformError) -> SendFailed | SendDelayed | SendUncertain:
    """The consequence for the message that was being sent."""
    match error:
        case Refused():
            return SendFailed(str(error))
        case Unanswered():
            return SendUncertain(str(error), lasting=isinstance(error, Undecidable))
        case TooFast(retry_after=float(seconds)):
            return SendDelayed(str(error), seconds)
        case _:  # what keeps the channel from working is over some day
            return SendDelayed(str(error))


def seconds_to_wait(told: object) -> float | None:
    """Seconds that a platform asks to wait, at most an hour; None without a valid value."""
    try:
        seconds = float(str(told))
    except ValueError:
        return None
    return min(seconds, LONGEST_WAIT) if seconds > 0 else None


@dataclass(slots=True)
class Recovery:
    """Trouble with a platform, or with our own database: each kind is logged once until it is over."""

    channel: str
    log: Logger
    pause: Callable[[float], Awaitable[None]]
    first_pause: float = 1.0
    _failures: int = 0
    _trouble: str = ""
    _since: datetime | None = None
    trouble: str = ""
    """The platform's last error in words for people; "" after a success."""

    @property
    def needed(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    def over(self) -> None:
        """The last try worked."""
        if self._trouble:
            self.log.info(f"{self.channel}.recovered", from_trouble=self._trouble)
        self._failures, self._trouble, self._since, self.trouble = 0, "", None, ""

    async def after(self, error: Exception) -> None:
        """Report `error`, then wait: as long as the platform asks, else a moment, doubling up to a bound."""
        self._failures += 1
        if isinstance(error, PlatformError):
            self._report(error.trouble, str(error), owner_must_act=error.owner_must_act)
            self.trouble = self._words(error)
            seconds = self._backoff(8.0) if error.retry_after is None else error.retry_after
        else:
            self._report("not_accepted", f"{type(error).__name__}: {error}", owner_must_act=False)
            seconds = self._backoff(2.0)
        await self.pause(seconds)

    def _report(self, trouble: str, why: str, *, owner_must_act: bool) -> None:
        event = f"{self.channel}.{trouble}"
        if event != self._trouble:
            (self.log.error if owner_must_act else self.log.warning)(event, why=why)
        self._trouble = event

    def _words(self, error: PlatformError) -> str:
        if error.owner_must_act:
            return f"refused: {error}"
        self._since = self._since or datetime.now(UTC)
        return f"unreachable since {self._since:%H:%M} UTC: {error}"

    def _backoff(self, longest: float) -> float:
        """Up to a half is left to chance, so that many apps do not return at once."""
        longest = min(longest, self.first_pause * 2.0 ** min(self._failures - 1, 5))
        return uniform(longest / 2, longest)
