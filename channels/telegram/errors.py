"""Telegram's refusals that mean more than that one request was in vain."""

from gateway.domain.platform import Refused


class Forbidden(Refused):
    """Nothing may be written in that chat, whatever it is."""


class Conflict(Refused):
    """Updates go elsewhere: to a webhook, or to another program."""

    trouble = "other_receiver"

    def __init__(self, refusal: str) -> None:
        super().__init__(f"another program uses this bot's token; stop it, or give each a bot of its own ({refusal})")
