"""What to do when Telegram, or our own database, is in trouble: say so once, wait, go on."""

import asyncio
from collections.abc import Awaitable, Callable
from random import uniform

from channels.telegram.errors import Conflict, Refused, TelegramError, TokenRefused, TooFast
from gateway.domain.logging import Logger

LONGEST_PAUSE = 30.0
LONGEST_FOR_THEM = 8.0
LONGEST_FOR_US = 2.0


class Recovery:
    """Each kind of trouble is logged once until it is over."""

    def __init__(self, log: Logger, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._logger = log
        self._pause = pause
        self._failures = 0
        self._trouble = ""

    @property
    def needed(self) -> bool:
        """The last try failed."""
        return self._failures > 0

    def over(self) -> None:
        """The last try worked."""
        if self._trouble:
            self._logger.info("telegram.recovered", from_trouble=self._trouble)
        self._failures, self._trouble = 0, ""

    async def after(self, error: Exception) -> None:
        """Report `error`, then wait: as long as Telegram asks, else a second, doubling up to a bound."""
        self._failures += 1
        self._report(error)
        await self._pause(self._seconds(error))

    def _report(self, error: Exception) -> None:
        match error:
            case TokenRefused():
                self._error("telegram.token_refused", "the token is wrong or was revoked; @BotFather gives a new one")
            case Conflict():
                self._error("telegram.other_receiver", f"another program uses this bot's token: {error}")
            case Refused():
                self._error("telegram.refused", str(error))
            case TelegramError():
                self._warning("telegram.unreachable", str(error))
            case _:
                self._warning("telegram.not_accepted", f"{type(error).__name__}: {error}")

    def _seconds(self, error: Exception) -> float:
        """Up to a half is left to chance, so that many bots do not return at once."""
        match error:
            case TooFast():
                return error.retry_after
            case TokenRefused():
                return LONGEST_PAUSE
            case TelegramError():
                return self._backoff(LONGEST_FOR_THEM)
            case _:
                return self._backoff(LONGEST_FOR_US)

    def _backoff(self, most: float) -> float:
        longest = min(most, 2.0 ** min(self._failures - 1, 5))
        return uniform(longest / 2, longest)

    def _warning(self, trouble: str, why: str) -> None:
        """It mends itself."""
        if trouble != self._trouble:
            self._logger.warning(trouble, why=why)
        self._trouble = trouble

    def _error(self, trouble: str, why: str) -> None:
        """The owner has to mend it."""
        if trouble != self._trouble:
            self._logger.error(trouble, why=why)
        self._trouble = trouble
