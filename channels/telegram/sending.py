"""One answer out: as Telegram's HTML where that works, else as plain text."""

import asyncio

from channels.telegram.client import Client
from channels.telegram.errors import Refused, TelegramError, TokenRefused, TooFast, Unanswered, Unreachable
from channels.telegram.markdown import to_html, visible
from gateway.domain.channel import Outgoing, SendDelayed, SendFailed, SendUncertain
from gateway.domain.splitting import utf16_len

MAX_TEXT = 4096
TOKEN_PAUSE = 60.0
LONG = 1024
"""Characters from which on rendering leaves the event loop to others: hostile Markdown takes a tenth of a second."""

_FORMAT_REFUSED = ("can't parse entities", "message is too long", "text is empty")


async def send(client: Client, message: Outgoing) -> str:
    """Telegram's id of the message; raises `SendFailed`, `SendDelayed` or `SendUncertain`."""
    html = to_html(message.text) if len(message.text) < LONG else await asyncio.to_thread(to_html, message.text)
    shown = visible(html)
    try:
        if shown.strip() and utf16_len(shown) <= MAX_TEXT:
            try:
                return await client.send(message.address, html, "HTML")
            except Refused as refused:
                if not refused.mentions(*_FORMAT_REFUSED):
                    raise
        return await client.send(message.address, message.text, None)
    except TelegramError as error:
        raise _outcome(error) from error


def _outcome(error: TelegramError) -> SendFailed | SendDelayed | SendUncertain:
    match error:
        case TooFast():
            return SendDelayed(str(error), error.retry_after)
        case Unreachable():
            return SendDelayed(str(error))
        case TokenRefused():
            return SendDelayed(f"Telegram refuses the token: {error}", TOKEN_PAUSE)
        case Unanswered():
            return SendUncertain(str(error))
        case _:
            return SendFailed(str(error))
