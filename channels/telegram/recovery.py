"""What to do when Telegram, or our own database, is in trouble: say so once, wait, go on."""

import asyncio
from collections.abc import Awaitable, Callable
from random import uniform

from channels.telegram.errors import Conflict, Refused, TelegramError, TokenRefused, TooFast
from gateway.domain.logging import Logger

TOKEN_PAUSE = 30.0
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
        """As an error what the owner has to mend, as a warning what mends itself."""
        match error:
            case TokenRefused():
                self._say(self._logger.error, "telegram.token_refused", str(error))
            case Conflict():
                why = f"another program uses this bot's token; stop it, or give each a bot of its own ({error})"
                self._say(self._logger.error, "telegram.other_receiver", why)
            case Refused():
                self._say(self._logger.error, "telegram.refused", str(error))
            case TelegramError():
                self._say(self._logger.warning, "telegram.unreachable", str(error))
            case _:
                self._say(self._logger.warning, "telegram.not_accepted", f"{type(error).__name__}: {error}")

    def _say(self, log: Callable[..., object], trouble: str, why: str) -> None:
        if trouble != self._trouble:
            log(trouble, why=why)
        self._trouble = trouble

    def _seconds(self, error: Exception) -> float:
        """Up to a half is left to chance, so that many bots do not return at once."""
        if isinstance(error, TooFast):
            return error.retry_after
        if isinstance(error, TokenRefused):
            return TOKEN_PAUSE
        bound = LONGEST_FOR_THEM if isinstance(error, TelegramError) else LONGEST_FOR_US
        longest = min(bound, 2.0 ** min(self._failures - 1, 5))
        return uniform(longest / 2, longest)
