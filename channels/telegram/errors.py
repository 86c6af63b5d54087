"""What can go wrong between us and the Bot API, told apart by what became of the request."""

from gateway.domain.errors import SupaclawError


class TelegramError(SupaclawError):
    """Base of this channel's errors; the text never holds the token."""


class Unreachable(TelegramError):
    """Nothing left this machine."""


class Unanswered(TelegramError):
    """The request left and no usable answer came back: it may have been carried out."""


class TooFast(TelegramError):
    """Flood control; nothing was done, and Telegram names the seconds to wait."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"Telegram asks to wait {retry_after} s")
        self.retry_after = retry_after


class Refused(TelegramError):
    """Telegram said no; the text is its own."""


class Forbidden(Refused):
    """Nothing may be written in that chat, whatever it is."""


class TokenRefused(TelegramError):
    """Telegram does not know the bot."""

    def __init__(self) -> None:
        super().__init__("the token is wrong or was revoked; @BotFather gives a new one")


class Conflict(Refused):
    """Updates go elsewhere: to a webhook, or to another program."""
