"""Updates of the Bot API → what happened. Imports aiogram: run `preload` first."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from aiogram.types import Chat, Message, MessageGenerationStopped, Update
from pydantic import ValidationError

from channels.telegram.raw import UPDATE_KINDS
from gateway.domain.inbound import Address, Inbound, Sender
from gateway.domain.json import JsonObject

# the first that fits counts: an animation is also a document, a venue also a location
_UNREADABLE = {
    "animation": "animation",
    "live_photo": "live photo",
    "photo": "photo",
    "paid_media": "paid media",
    "voice": "voice message",
    "audio": "audio",
    "video_note": "video message",
    "video": "video",
    "sticker": "sticker",
    "document": "document",
    "venue": "venue",
    "location": "location",
    "contact": "contact",
    "poll": "poll",
    "dice": "dice",
    "game": "game",
    "story": "story",
    "checklist": "checklist",
    "rich_message": "rich message",
}
_COMMAND_FOR = re.compile(r"(/\w+)@(\w+)")


class Unreadable(ValueError):
    """Not an update as aiogram knows them; the text says where."""


@dataclass(frozen=True, slots=True)
class Us:
    """The bot itself."""

    id: int
    username: str

    def is_called(self, name: str) -> bool:
        """Whether `name`, with or without its @, is this bot's."""
        return bool(self.username) and name.removeprefix("@").casefold() == self.username.casefold()


def prepare() -> None:
    """Build the models now, a tenth of a second of work that would else fall on the first message."""
    Update.model_rebuild()


def to_inbound(raw: JsonObject, us: Us) -> Inbound | None:
    """None for what is of no interest (joins, pins, kinds we do not handle); raises `Unreadable`."""
    if raw.keys().isdisjoint(UPDATE_KINDS):
        return None
    try:
        update = Update.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if update.message is not None:
        return _from_message(update.message, us)
    if update.edited_message is not None:
        return _from_message(update.edited_message, us, edit=update.update_id)
    if update.stopped_message_generation is not None:
        return _from_stop(update.stopped_message_generation, update.update_id, us)
    return None


def _from_message(message: Message, us: Us, *, edit: int | None = None) -> Inbound | None:
    """An edit is known by its update: several edits within one second have the same date."""
    text = _text(message)
    sender = _sender(message)
    if text is None or sender is None:
        return None
    private = message.chat.type == "private"
    return Inbound(
        address=_address(message.chat, message.message_thread_id if message.is_topic_message else None, us),
        sender=sender,
        text=_without_our_name(text, us),
        platform_id=f"{message.message_id}:{edit}" if edit else str(message.message_id),
        sent_at=datetime.fromtimestamp(message.edit_date, UTC) if edit and message.edit_date else message.date,
        edits=str(message.message_id) if edit else None,
        private=private,
        addressed=private or _is_addressed(message, text, us),
    )


def _from_stop(stop: MessageGenerationStopped, number: int, us: Us) -> Inbound:
    """The stop button under a draft, which exists in private chats only: the same as /stop."""
    return Inbound(
        address=_address(stop.chat, stop.message_thread_id, us),
        sender=Sender(str(stop.chat.id), stop.chat.full_name),
        text="/stop",
        platform_id=f"stop:{number}",
        sent_at=datetime.now(UTC),
    )


def _address(chat: Chat, thread: int | None, us: Us) -> Address:
    return Address("telegram", str(us.id), str(chat.id), "" if thread is None else str(thread))


def _sender(message: Message) -> Sender | None:
    """Who wrote it; whoever writes as a chat (a channel, an anonymous admin) counts as a bot."""
    if message.sender_chat is not None:
        return Sender(str(message.sender_chat.id), message.sender_chat.full_name, is_bot=True)
    if message.from_user is None:
        return None
    return Sender(str(message.from_user.id), message.from_user.full_name, message.from_user.is_bot)


def _text(message: Message) -> str | None:
    if message.text is not None:
        return message.text.replace("\0", "")
    kind = next((label for field, label in _UNREADABLE.items() if getattr(message, field) is not None), None)
    return None if kind is None else f"[{kind}, not readable yet] {message.caption or ''}".strip()


def _without_our_name(text: str, us: Us) -> str:
    command = _COMMAND_FOR.match(text)
    if command and us.is_called(command.group(2)):
        return command.group(1) + text[command.end() :]
    return text


def _is_addressed(message: Message, text: str, us: Us) -> bool:
    """In a group: a command of ours, our name, or a reply to something we said."""
    if text.startswith("/"):
        command = _COMMAND_FOR.match(text)
        return command is None or us.is_called(command.group(2))
    return _is_reply_to(message.reply_to_message, us) or _is_mentioned(message, us)


def _is_reply_to(said: Message | None, us: Us) -> bool:
    """In a topic every message replies to the note that opened it, which may be ours."""
    return (
        said is not None and said.from_user is not None and said.from_user.id == us.id and not said.forum_topic_created
    )


def _is_mentioned(message: Message, us: Us) -> bool:
    text = message.text or message.caption or ""
    for entity in message.entities or message.caption_entities or ():
        if entity.type == "mention" and us.is_called(entity.extract_from(text)):
            return True
        if entity.user is not None and entity.user.id == us.id:
            return True
    return False
