"""Sending an answer: as a rich page if it needs one, otherwise as Telegram's HTML, or at worst as plain text."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from channels.telegram.client import ANSWER_SECONDS, MAX_TEXT, Client, Upload
from channels.telegram.errors import Forbidden
from channels.telegram.markdown import to_html, to_rich, visible
from gateway.domain.channels.channel import Outgoing, OutgoingFile, SendFailed
from gateway.domain.channels.platform import PlatformError, Refused, send_error
from gateway.domain.text.markdown import is_right_to_left
from gateway.domain.text.splitting import utf16_len

MAX_CAPTION = 1024
MAX_PHOTO = 10_000_000
SLOWEST_UPLOAD = 50_000
"""Bytes per second."""

ApiCall: TypeAlias = tuple[str, Mapping[str, object]]
"""A method of the Bot API and the content it shows."""

_NOT_IN_A_NAME = re.compile(r'[\x00-\x1f\x7f"\\/]+')
_KINDS = {
    **dict.fromkeys(("image/jpeg", "image/png", "image/webp"), "photo"),
    "audio/ogg": "voice",
    **dict.fromkeys(("audio/mpeg", "audio/mp4", "audio/x-m4a"), "audio"),
    "video/mp4": "video",
}
_MEANINGS = {
    "blocked by the user": "the person has blocked the bot; they have to unblock it in Telegram",
    "user is deactivated": "this Telegram account was deleted",
    "can't initiate conversation": "a bot cannot write first; the person has to send /start to it",
    "chat not found|peer_id_invalid": "Telegram does not know this chat; the person has to send /start to the bot",
    "was kicked": "the bot was removed from the group; add it again",
    "is not a member": "the bot is no longer in the group; add it again",
    "not enough rights|have no rights|chat_write_forbidden": "the bot may not write there; allow it in its permissions",
    "thread not found": "the topic was deleted",
    "topic_closed": "the topic is closed; open it again",
}


async def send(client: Client, message: Outgoing, *, rich: bool) -> str:
    """Send a message and return Telegram's id of it; raises `SendFailed`, `SendDelayed` or `SendUncertain`."""
    if message.file is None:
        # in a thread: hostile Markdown takes 0.1 s
        forms = await asyncio.to_thread(_text_calls, message.text, rich=rich)
    else:
        forms = _file_calls(message.text, message.file)
    seconds = ANSWER_SECONDS + (message.file.size // SLOWEST_UPLOAD if message.file else 0)
    try:
        return await _show(client, message, forms, seconds)
    except Refused as error:
        raise SendFailed(_explained(str(error))) from error
    except PlatformError as error:
        raise send_error(error) from error


async def _show(client: Client, message: Outgoing, forms: Sequence[ApiCall], seconds: float) -> str:
    """Try one form after another, since Telegram may refuse only the form; raises the refusal of the last one.

    The last of several is not shown as a reply, either.
    """
    for method, content in forms[:-1]:
        try:
            return await client.show(message, method, seconds, **content)
        except Forbidden:
            raise
        except Refused as error:
            if message.reply_to is None or "repl" not in str(error).lower():
                continue
        with suppress(Refused):  # only the reply was refused, not the form
            message = replace(message, reply_to=None)
            return await client.show(message, method, seconds, **content)
    method, content = forms[-1]
    last = message if len(forms) == 1 else replace(message, reply_to=None)
    return await client.show(last, method, seconds, **content)


def _text_calls(text: str, *, rich: bool) -> Sequence[ApiCall]:
    html, page = to_html(text), to_rich(text) if rich else None
    shown = visible(html)
    rich_message = {"html": page} | ({"is_rtl": True} if is_right_to_left(text) else {})
    forms: list[ApiCall] = [] if page is None else [("sendRichMessage", {"rich_message": rich_message})]
    if shown.strip() and utf16_len(shown) <= MAX_TEXT:
        forms.append(_text_call(html, "HTML"))
    return [*forms, _text_call(text, None)]


def _text_call(text: str, parse_mode: str | None) -> ApiCall:
    """Without previews of links: Telegram would fetch whatever address a model wrote."""
    return "sendMessage", {"text": text, "parse_mode": parse_mode, "link_preview_options": {"is_disabled": True}}


def _file_calls(caption: str, file: OutgoingFile) -> Sequence[ApiCall]:
    """A picture, film or sound that Telegram does not take as such goes as a document."""
    if not Path(file.path).is_file():
        raise SendFailed(f"{file.name} is no longer there")
    html, kind = to_html(caption), _kind(file)
    fits = utf16_len(visible(html)) <= MAX_CAPTION
    best = _file_call(kind, file, html, "HTML") if fits else _file_call(kind, file, caption, None)
    plain = _file_call("document", file, caption, None)
    return [plain] if kind == "document" and html == caption else [best, plain]


def _file_call(kind: str, file: OutgoingFile, caption: str, parse_mode: str | None) -> ApiCall:
    name = _NOT_IN_A_NAME.sub("_", file.name)[-200:] or "file"
    return f"send{kind.capitalize()}", {kind: Upload(file.path, name), "caption": caption, "parse_mode": parse_mode}


def _kind(file: OutgoingFile) -> str:
    kind = _KINDS.get(file.mime.partition(";")[0].strip().lower(), "document")
    return "document" if kind == "photo" and file.size > MAX_PHOTO else kind


def _explained(refusal: str) -> str:
    """One line: Telegram's own words, and ours where we have any."""
    meaning = next((told for words, told in _MEANINGS.items() if re.search(words, refusal, re.IGNORECASE)), "")
    return f"{refusal} ({meaning})" if meaning else refusal
