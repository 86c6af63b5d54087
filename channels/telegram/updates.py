"""Updates of the Bot API → what happened. Imports aiogram: run `preload` first."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from aiogram.types import CallbackQuery, Chat, MaybeInaccessibleMessage, Message, MessageGenerationStopped, Update, User
from pydantic import ValidationError

from channels.telegram import media
from channels.telegram.client import UPDATE_KINDS
from gateway.domain.channels.routing import parse_command
from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.json import Json, JsonObject

_HIDDEN: JsonObject = {"type": "hidden_user", "date": 1, "sender_user_name": "somebody"}
_ASIDE: JsonObject = {
    "reply_to_message": None,
    "reply_markup": None,
    "forward_origin": _HIDDEN,
    "external_reply": {"origin": _HIDDEN},
}
_COMMAND_FOR = re.compile(r"\A(/\w+)@(\w+)")


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


def to_inbound(raw: JsonObject, us: Us) -> Inbound | None:
    """None for what is of no interest (joins, pins, kinds we do not handle); raises `Unreadable`."""
    if raw.keys().isdisjoint(UPDATE_KINDS):
        return None
    update = _update(raw)
    if update.message is not None:
        return _from_message(update.message, us)
    if update.edited_message is not None:
        return _from_message(update.edited_message, us, edit=update.update_id)
    if update.callback_query is not None:
        return _from_press(update.callback_query, us)
    if update.stopped_message_generation is not None:
        return _from_stop(update.stopped_message_generation, update.update_id, us)
    return None


def _update(raw: JsonObject) -> Update:
    """What is only said about a message, and is newer than aiogram, costs nobody the message; a forward stays one."""
    for given in (raw, {kind: _without_asides(content) for kind, content in raw.items()}):
        try:
            return Update.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
    raise Unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


def _without_asides(content: Json) -> Json:
    if not isinstance(content, Mapping):
        return content
    return {name: _ASIDE.get(name, value) for name, value in content.items()}


def _from_message(message: Message, us: Us, *, edit: int | None = None) -> Inbound | None:
    """An edit is known by its update: several edits within one second have the same date."""
    text, sender = _text(message), _sender(message)
    if text is None or sender is None:
        return None
    private = message.chat.type == "private"
    return Inbound(
        address=_address(message.chat, _topic(message), us),
        sender=sender,
        text=_without_our_name(text, us),
        platform_id=f"{message.message_id}:{edit}" if edit else str(message.message_id),
        sent_at=datetime.fromtimestamp(message.edit_date, UTC) if edit and message.edit_date else message.date,
        edits=str(message.message_id) if edit else None,
        private=private,
        addressed=private or _is_addressed(message, text, us),
        attachments=media.attachments(message),
        album=message.media_group_id or "",
        quoted=media.quoted(message),
        quoted_id=str(said.message_id) if (said := message.reply_to_message) and not message.external_reply else "",
        forwarded=media.source(message),
    )


def _from_press(press: CallbackQuery, us: Us) -> Inbound | None:
    """Whoever pressed it says its value; which topic a message was in that we cannot reach is no longer known."""
    if press.message is None or press.data is None:
        return None
    return Inbound(
        address=_address(press.message.chat, _topic(press.message), us),
        sender=_person(press.from_user),
        text=press.data,
        platform_id=f"button:{press.id}",
        sent_at=datetime.now(UTC),
        private=press.message.chat.type == "private",
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


def _topic(message: MaybeInaccessibleMessage) -> int | None:
    """A chain of replies has a thread id too, and is none; nor has the general topic one."""
    return message.message_thread_id if isinstance(message, Message) and message.is_topic_message else None


def _person(user: User) -> Sender:
    return Sender(str(user.id), user.full_name, user.is_bot)


def _sender(message: Message) -> Sender | None:
    """Who wrote it; whoever writes as a chat (a channel, an anonymous admin) counts as a bot."""
    if message.sender_chat is not None:
        return Sender(str(message.sender_chat.id), message.sender_chat.full_name, is_bot=True)
    return None if message.from_user is None else _person(message.from_user)


def _text(message: Message) -> str | None:
    """None for a message about nothing, such as that somebody joined."""
    if message.text is not None:
        return message.text
    words = media.words(message)
    return None if words is None else f"{words} {message.caption or ''}".strip()


def _without_our_name(text: str, us: Us) -> str:
    return _COMMAND_FOR.sub(lambda command: command[1] if us.is_called(command[2]) else command[0], text)


def _is_addressed(message: Message, text: str, us: Us) -> bool:
    """In a group: a command of ours, our name, or a reply to something we said.

    In a topic every message replies to the note that opened it, which may be ours.
    """
    command, _, name = parse_command(text)[0].partition("@")
    if command and message.forward_origin is None:
        return not name or us.is_called(name)
    said = message.reply_to_message
    if said and said.from_user and said.from_user.id == us.id and not said.forum_topic_created:
        return True
    return _is_mentioned(message, us)


def _is_mentioned(message: Message, us: Us) -> bool:
    text = message.text or message.caption or ""
    return any(
        us.is_called(entity.extract_from(text)) if entity.type == "mention" else entity.user and entity.user.id == us.id
        for entity in message.entities or message.caption_entities or ()
    )
