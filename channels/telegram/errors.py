"""What can go wrong between us and the Bot API.

TelegramError
├── Unreachable    nothing left this machine
├── Unanswered     the request left, its answer is lost or unreadable
├── TooFast        Telegram names the seconds to wait
└── Refused        Telegram said no
    ├── TokenRefused
    └── Conflict   someone else gets the updates: a webhook or another program
"""

from gateway.domain.errors import SupaclawError


class TelegramError(SupaclawError):
    """Base of this channel's errors; the text never holds the token."""


class Unreachable(TelegramError):
    """Nothing left this machine."""


class Unanswered(TelegramError):
    """The request left and no usable answer came back: it may have been carried out."""


class TooFast(TelegramError):
    """Flood control; nothing was done."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Refused(TelegramError):
    """Telegram refused the request; the text is its own."""

    def mentions(self, *phrases: str) -> bool:
        """Telegram tells most refusals apart by their text alone."""
        text = str(self).lower()
        return any(phrase in text for phrase in phrases)


class TokenRefused(Refused):
    """The token is wrong or was revoked."""


class Conflict(Refused):
    """Updates go elsewhere."""
