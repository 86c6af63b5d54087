"""What can go wrong between us and Slack, and how it is got over."""

import asyncio
from collections.abc import Awaitable, Callable
from random import uniform

from gateway.domain.errors import SupaclawError
from gateway.domain.logging import Logger

_MEANINGS = {
    "account_inactive": "the app was removed from the workspace; install it again at api.slack.com/apps",
    "channel_not_found": "Slack does not know the chat, or the app is not in it; invite it there",
    "is_archived": "the channel is archived",
    "missing_scope": "the app lacks a permission; add it at api.slack.com/apps and install the app again",
    "not_in_channel": "the app is not in the channel; invite it there",
    "restricted_action": "the workspace does not let the app write there",
}


class SlackError(SupaclawError):
    """Base of this channel's errors; the text never holds a token."""


class Unreachable(SlackError):
    """Nothing left this machine."""


class Unanswered(SlackError):
    """The request left and no usable answer came back: it may have been carried out."""


class TooFast(SlackError):
    """A rate limit; nothing was done."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"Slack asks to wait {retry_after:g} s")
        self.retry_after = retry_after


class Refused(SlackError):
    """Slack refused the request for the reason `code`, such as "channel_not_found"."""

    def __init__(self, code: str, needed: str = "") -> None:
        super().__init__(f"{_MEANINGS.get(code, 'Slack refuses it')} ({code})" + (f": {needed}" if needed else ""))
        self.code = code


class TokenRefused(SlackError):
    """A token is wrong or was revoked; whatever was asked for can be done once the owner has mended that."""

    def __init__(self, code: str) -> None:
        super().__init__(f"a token is wrong or was revoked; api.slack.com/apps shows both ({code})")


class Recovery:
    """Trouble with Slack, or with our own database: each kind is logged once until it is over."""

    def __init__(self, log: Logger, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._logger = log
        self._pause = pause
        self._failures = 0
        self._trouble = ""

    def over(self) -> None:
        """The last try worked."""
        if self._trouble:
            self._logger.info("slack.recovered", from_trouble=self._trouble)
        self._failures, self._trouble = 0, ""

    async def after(self, error: Exception) -> None:
        """Report `error`, then wait: as long as Slack asks, else half a second, doubling up to a bound."""
        self._failures += 1
        match error:
            case TokenRefused():
                self._say(self._logger.error, "slack.token_refused", str(error))
                seconds = 30.0
            case Refused():
                self._say(self._logger.error, "slack.refused", str(error))
                seconds = 30.0
            case SlackError():
                self._say(self._logger.warning, "slack.unreachable", str(error))
                seconds = error.retry_after if isinstance(error, TooFast) else self._backoff(8.0)
            case _:
                self._say(self._logger.warning, "slack.not_accepted", f"{type(error).__name__}: {error}")
                seconds = self._backoff(2.0)
        await self._pause(seconds)

    def _say(self, log: Callable[..., object], trouble: str, why: str) -> None:
        if trouble != self._trouble:
            log(trouble, why=why)
        self._trouble = trouble

    def _backoff(self, most: float) -> float:
        """Up to a half is left to chance, so that many apps do not return at once."""
        longest = min(most, 2.0 ** min(self._failures - 2, 5))
        return uniform(longest / 2, longest)
