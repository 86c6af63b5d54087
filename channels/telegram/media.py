"""What a message holds beside text: its files, and words for what is no file. Imports aiogram: run `preload` first."""

from aiogram.types import ExternalReplyInfo, Location, Message, Sticker
from aiogram.types.message_origin_union import MessageOriginUnion

from gateway.domain.conversation.inbound import Attachment
from gateway.domain.text.texts import one_line

LONGEST_QUOTE = 500

# the first that fits counts: an animation is also a document, a venue also a location
_KINDS = (
    *("animation", "photo", "paid_media", "voice", "audio", "video_note", "video", "sticker", "document"),
    *("venue", "location", "contact", "poll", "dice", "story", "checklist", "rich_message"),
)
_NAMES = {"voice": "voice message", "video_note": "video message"}
_FILES = {
    "animation": (".mp4", "video/mp4"),
    "photo": (".jpg", "image/jpeg"),
    "voice": (".ogg", "audio/ogg"),
    "audio": (".mp3", "audio/mpeg"),
    "video_note": (".mp4", "video/mp4"),
    "video": (".mp4", "video/mp4"),
    "sticker": (".webp", "image/webp"),
    "document": ("", ""),
}
_PAGE_LINES = ("paragraph", "heading", "pre", "footer", "pullquote")


def attachments(message: Message) -> tuple[Attachment, ...]:
    """The file of a message, under a name that tells it apart."""
    field = _kind(message)
    if field not in _FILES:
        return ()
    file = getattr(message, field)
    if isinstance(file, Sticker) and (file.is_animated or file.is_video):
        return ()  # its format is Telegram's own
    if isinstance(file, list):
        file = max(file, key=lambda size: size.width * size.height)
    ending, mime = _FILES[field]
    name = getattr(file, "file_name", None) or f"{field.replace('_', '-')}-{file.file_unique_id}{ending}"
    return (Attachment(file.file_id, name, getattr(file, "mime_type", None) or mime, file.file_size),)


def words(message: Message) -> str | None:
    """What is said by something that is neither text nor file; None for a message about nothing."""
    field = _kind(message)
    if field in _FILES and field != "sticker":
        return ""
    return _told(message)


def quoted(message: Message) -> str:
    """What the message replies to, as far as Telegram tells: the marked part, else the whole; and whose it is."""
    said, elsewhere = message.reply_to_message, message.external_reply
    if elsewhere is not None:
        marked = message.quote.text if message.quote else _told(elsewhere)
        text = f"Forwarded from {_origin(elsewhere.origin)}:\n{marked or ''}".strip()
    elif message.quote is not None:
        text = message.quote.text
    elif said is not None and not said.forum_topic_created:
        text = said.text or " ".join(filter(None, (_told(said), said.caption)))
    else:
        text = ""
    return text[:LONGEST_QUOTE]


def source(message: Message) -> str:
    """Where a text comes from that its sender only passed on, "" if they wrote it; other people fill in cards."""
    if message.forward_origin is not None:
        return _origin(message.forward_origin)
    if message.via_bot is not None:
        return f"the bot {message.via_bot.full_name}"
    if message.story is not None or message.forward_date is not None:
        return "somebody"
    return "a card" if message.contact or message.venue else ""


def _origin(origin: MessageOriginUnion) -> str:
    """A user, a hidden user, a chat or a channel."""
    found = (getattr(origin, field, None) for field in ("sender_user", "sender_user_name", "sender_chat", "chat"))
    who = next(filter(None, found), "")
    return one_line(who if isinstance(who, str) else who.full_name, 64) or "somebody"


def _kind(message: Message | ExternalReplyInfo) -> str | None:
    """The name of the field that says what a message without text is."""
    return next((field for field in _KINDS if getattr(message, field, None)), None)


def _told(message: Message | ExternalReplyInfo) -> str | None:
    field = _kind(message)
    if field is None:
        return None
    if isinstance(message, Message) and message.rich_message is not None:
        return _page(message.rich_message.model_dump()).strip() or _label(field)
    return _label(field, _details(field, message))


def _label(field: str, details: str = "") -> str:
    return f"[{' '.join(filter(None, (_NAMES.get(field, field.replace('_', ' ')), details)))}]"


def _details(field: str, message: Message | ExternalReplyInfo) -> str:
    value = getattr(message, field)
    match field:
        case "location":
            return _place(value)
        case "venue":
            return f"{value.title}, {value.address}, {_place(value.location)}"
        case "contact":
            return ", ".join(filter(None, (f"{value.first_name} {value.last_name or ''}".strip(), value.phone_number)))
        case "poll":
            return f"{value.question} {' / '.join(option.text for option in value.options)}"
        case "dice":
            return f"{value.emoji} {value.value}"
        case "sticker":
            return value.emoji or ""
        case "checklist":
            return "; ".join((value.title, *(task.text for task in value.tasks)))
        case _:
            return ""


def _place(location: Location) -> str:
    """To a metre."""
    return f"{round(location.latitude, 5)}, {round(location.longitude, 5)}"


def _page(part: object) -> str:
    """What a rich message says, as JSON of its blocks; pictures and maps say nothing."""
    match part:
        case str():
            return part
        case list():
            return "".join(map(_page, part))
        case {"cells": list(rows)}:
            return "".join(" | ".join(map(_page, row)) + "\n" for row in rows)
        case {"label": label, "blocks": blocks}:
            return f"{label} {_page(blocks)}"
        case {"summary": summary, "blocks": blocks}:
            return f"{_page(summary)}\n{_page(blocks)}"
        case {"type": kind, "text": text} if kind in _PAGE_LINES:
            return f"{_page(text)}\n"
        case dict():
            says = (part.get(key) for key in ("text", "blocks", "items", "expression", "alternative_text"))
            return "".join(map(_page, says))
        case _:
            return ""
