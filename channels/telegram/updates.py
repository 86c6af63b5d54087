"""Updates of the Bot API → messages, with files, and words for stickers, polls and the like.

Imports aiogram, so run `load_aiogram` first.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from aiogram.types import (
    CallbackQuery,
    Chat,
    ExternalReplyInfo,
    MaybeInaccessibleMessage,
    Message,
    MessageGenerationStopped,
    Sticker,
    Update,
    User,
)
from aiogram.types.message_origin_union import MessageOriginUnion
from pydantic import ValidationError

from channels.telegram.client import UPDATE_KINDS
from channels.telegram.content import KINDS, LEFT_OUT, NOTES, UNREADABLE, added_to, described, kind_of, strings_in, told
from channels.telegram.reception import update_id
from gateway.domain.channels.platform import Logger
from gateway.domain.channels.routing import parse_command
from gateway.domain.conversation.inbound import Address, Attachment, Inbound, Sender
from gateway.domain.json import Json, JsonObject
from gateway.domain.text.texts import one_line

_FILES = {
    **dict.fromkeys(("animation", "video_note", "video"), (".mp4", "video/mp4")),
    "photo": (".jpg", "image/jpeg"),
    "voice": (".ogg", "audio/ogg"),
    "audio": (".mp3", "audio/mpeg"),
    "sticker": (".webp", "image/webp"),
    "document": ("", ""),
}
_CARDS = {"venue", "contact", *KINDS[KINDS.index("game") :]}
"""Kinds with words of others."""


def attachments_of(message: Message | ExternalReplyInfo) -> tuple[Attachment, ...]:
    """The file of a message, under a distinct name."""
    field = kind_of(message)
    if field not in _FILES:
        return ()
    file = getattr(message, field)
    if isinstance(file, Sticker) and (file.is_animated or file.is_video):
        return ()  # in a format of Telegram's own
    if isinstance(file, list):
        file = max(file, key=lambda size: size.width * size.height)
    ending, mime = _FILES[field]
    name = getattr(file, "file_name", None) or f"{field.replace('_', '-')}-{file.file_unique_id}{ending}"
    return (Attachment(file.file_id, name, getattr(file, "mime_type", None) or mime, file.file_size),)


_CONTENT = re.compile(r"'(?:file_id|text|caption)':")
"""Fields of what a person sends, in a kind of message that is newer than aiogram."""


def words_of(message: Message) -> str | None:
    """The text for a message without a text; "" for a file, None for a note of Telegram's own."""
    if kind_of(message) in _FILES.keys() - {"sticker"}:
        return ""
    note = message.model_fields_set & NOTES or (message.model_extra and not _CONTENT.search(str(message.model_extra)))
    unknown = "[a message that isn't readable here; say it in words, or send it as a file]"
    return described(message) or (None if note else unknown)


def quote_of(message: Message) -> str:
    """The text that the message replies to: the quoted part, or all of it; with its author if it is from elsewhere."""
    said, elsewhere = message.reply_to_message, message.external_reply
    meant = message.reply_to_checklist_task_id or message.reply_to_poll_option_id
    if elsewhere is not None:
        marked = told(message.quote, inline=True) if message.quote else described(elsewhere, meant)
        return f"Forwarded from {_origin(elsewhere.origin)}:\n{marked or '[not shown to bots: quote or forward it]'}"
    if message.quote is not None:
        return told(message.quote, inline=True)
    if message.reply_to_story is not None:
        return f"[story: not readable here; {UNREADABLE['story']}]"
    if said is None or said.forum_topic_created:
        return ""
    words = told(said, inline=True)
    kind = "" if said.text else described(said, meant) or words_of(said)
    buttons = " / ".join(strings_in(said.reply_markup))
    return " ".join(filter(None, (kind, words, f"[buttons: {buttons}]" * bool(buttons))))


def forward_source(message: Message) -> str:
    """The author of a text that its sender did not write; "" if they did. Contact cards and venues count as others'."""
    if message.forward_origin is not None:
        return _origin(message.forward_origin)
    if message.via_bot is not None:
        return f"the bot {message.via_bot.full_name}"
    if message.story is not None or message.forward_date is not None:
        return "somebody"
    return "a card" if kind_of(message) in _CARDS else ""


def _origin(origin: MessageOriginUnion) -> str:
    """The name of a user, a hidden user, a chat or a channel."""
    found = (getattr(origin, field, None) for field in ("sender_user", "sender_user_name", "sender_chat", "chat"))
    who = next(filter(None, found), "")
    signed = f", {author}" if (author := getattr(origin, "author_signature", None)) else ""
    return one_line((who if isinstance(who, str) else who.full_name) + signed, 64) or "somebody"


_HIDDEN: JsonObject = {"type": "hidden_user", "date": 1, "sender_user_name": "somebody"}
_ASIDE: dict[str, Json] = dict.fromkeys(("reply_to_message", "reply_markup"))
_ASIDE |= {"forward_origin": _HIDDEN, "external_reply": {"origin": _HIDDEN}}
_HEAD = {*LEFT_OUT["who wrote, where and when"].split(), "from", "forward_origin", "forward_date"}
_HEAD |= {"text", "entities", "caption", "caption_entities"}
_COMMAND_FOR = re.compile(r"\A(/\w+)@(\w+)")


class UnreadableUpdate(ValueError):
    """The update differs from aiogram's models; the text says where."""


@dataclass(frozen=True, slots=True)
class BotAccount:
    """The bot itself."""

    id: int
    username: str

    def is_called(self, name: str) -> bool:
        """Whether `name`, with or without @, is this bot's name."""
        return bool(self.username) and name.removeprefix("@").casefold() == self.username.casefold()


def read(updates: Iterable[JsonObject], account: BotAccount, log: Logger) -> Iterator[tuple[int, Inbound]]:
    """Yield the messages in updates, each with the id of its update; unreadable ones are logged."""
    for raw in updates:
        try:
            if (inbound := to_inbound(raw, account)) is not None:
                yield update_id(raw), inbound
        except UnreadableUpdate as error:
            log.warning("telegram.update_skipped", update=update_id(raw), why=str(error))


def to_inbound(raw: JsonObject, account: BotAccount) -> Inbound | None:
    """The message in an update; None for joins, pins and other kinds. Raises `UnreadableUpdate`."""
    if raw.keys().isdisjoint(UPDATE_KINDS):
        return None
    update = _update(raw)
    if update.message is not None:
        return _from_message(update.message, account)
    if update.edited_message is not None:
        return _from_message(update.edited_message, account, edit=update.update_id)
    if update.callback_query is not None:
        return _from_press(update.callback_query, account)
    if update.stopped_message_generation is not None:
        return _from_stop(update.stopped_message_generation, update.update_id, account)
    return None


def _update(raw: JsonObject) -> Update:
    """Parse an update, without the fields about a message if aiogram doesn't know them yet, else its words alone.

    A forward stays one.
    """
    for reduced in (lambda content: content, _without_asides, _words_alone):
        try:
            return Update.model_validate({kind: reduced(content) for kind, content in raw.items()})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
    raise UnreadableUpdate(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


def _without_asides(content: Json) -> Json:
    if not isinstance(content, Mapping):
        return content
    return {name: _ASIDE.get(name, value) for name, value in content.items()}


def _words_alone(content: Json) -> Json:
    """The words of a message with their author and place; without words it counts as a kind that isn't readable."""
    said = _without_asides(content)
    return {name: said[name] for name in _HEAD & said.keys()} if isinstance(said, Mapping) else said


def _from_message(message: Message, account: BotAccount, *, edit: int | None = None) -> Inbound | None:
    """An edit gets its id from the update, since several edits in one second have the same date."""
    text, sender = _text(message), _sender(message)
    if text is None or sender is None:
        return None
    private, said = message.chat.type == "private", message.reply_to_message
    replied = message.external_reply or said  # also to a message in another chat
    return Inbound(
        address=_address(message.chat, _topic(message), account),
        sender=sender,
        text=_COMMAND_FOR.sub(lambda said: said[1] if account.is_called(said[2]) else said[0], text),
        platform_id=f"{message.message_id}:{edit}" if edit else str(message.message_id),
        sent_at=datetime.fromtimestamp(message.edit_date, UTC) if edit and message.edit_date else message.date,
        edits=str(message.message_id) if edit else None,
        private=private,
        as_owner=True,
        addressed=private or _is_addressed(message, text, account),
        attachments=attachments_of(message),
        album=message.media_group_id or "",
        quoted=quote_of(message),
        quoted_id=str(said.message_id) if said and not message.external_reply else "",
        quoted_files=attachments_of(replied) if replied else (),
        forwarded=forward_source(message),
        added=added_to(message, text),
    )


def _from_press(press: CallbackQuery, account: BotAccount) -> Inbound | None:
    """A button press as a message with the value of the button; an inaccessible message has lost its topic."""
    if press.message is None or press.data is None:
        return None
    return Inbound(
        address=_address(press.message.chat, _topic(press.message), account),
        sender=_person(press.from_user),
        text=press.data,
        platform_id=f"button:{press.id}",
        sent_at=datetime.now(UTC),
        private=press.message.chat.type == "private",
        as_owner=True,
    )


def _from_stop(stop: MessageGenerationStopped, number: int, account: BotAccount) -> Inbound:
    """The stop button under a draft, in private chats only, as /stop."""
    return Inbound(
        address=_address(stop.chat, stop.message_thread_id, account),
        sender=Sender(str(stop.chat.id), stop.chat.full_name),
        text="/stop",
        platform_id=f"stop:{number}",
        sent_at=datetime.now(UTC),
        private=True,
        as_owner=True,
    )


def _address(chat: Chat, thread: int | None, account: BotAccount) -> Address:
    return Address("telegram", str(account.id), str(chat.id), "" if thread is None else str(thread))


def _topic(message: MaybeInaccessibleMessage) -> int | None:
    """The id of the topic. Chains of replies have a thread id, too, but are not topics; the general topic has none."""
    return message.message_thread_id if isinstance(message, Message) and message.is_topic_message else None


def _person(user: User) -> Sender:
    return Sender(str(user.id), user.full_name, user.is_bot)


def _sender(message: Message) -> Sender | None:
    """The author; a chat as the author (a channel, an anonymous admin) counts as a bot."""
    if message.sender_chat is not None:
        return Sender(str(message.sender_chat.id), message.sender_chat.full_name, is_bot=True)
    return None if message.from_user is None else _person(message.from_user)


def _text(message: Message) -> str | None:
    """The text; None for a message without content, such as a join."""
    words = "" if message.text is not None else words_of(message)
    text = told(message, inline=message.forward_origin is not None)
    return None if words is None else f"{words} {text}".strip() if words else text


def _is_addressed(message: Message, text: str, account: BotAccount) -> bool:
    """Whether a message in a group is a command for the bot, mentions it, or replies to it.

    In a topic every message replies to the note that opened it, which doesn't count.
    """
    command, _, name = parse_command(text)[0].partition("@")
    if command and message.forward_origin is None:
        return not name or account.is_called(name)
    said = message.reply_to_message
    if said and said.from_user and said.from_user.id == account.id and not said.forum_topic_created:
        return True
    return _is_mentioned(message, account)


def _is_mentioned(message: Message, account: BotAccount) -> bool:
    text = message.text or message.caption or ""
    return any(
        account.is_called(entity.extract_from(text))
        if entity.type == "mention"
        else entity.user and entity.user.id == account.id
        for entity in message.entities or message.caption_entities or ()
    )
