"""Slack's events → what happened, before it is known who is called what and whether we are meant."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from channels.slack.markup import mentioned, readable, without_mention
from channels.slack.payloads import Action, Message, MessageEvent, Us
from gateway.domain.channels.routing import parse_command
from gateway.domain.conversation.inbound import Address, Attachment, Inbound, Sender
from gateway.domain.text.texts import one_line

SAID = (None, "file_share", "thread_broadcast", "me_message", "bot_message")
"""The subtypes of messages that somebody wrote; the others are Slack's."""
EDIT = "message_changed"

Model = TypeVar("Model", bound=BaseModel)


class Unreadable(ValueError):
    """Not what Slack documents; the text says where."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message or an edit; its text is still Slack's markup. An edit has `edited_at`, and the text `before` it."""

    at: Address
    private: bool
    message: Message
    edited_at: str | None = None
    before: str = ""

    @property
    def sender(self) -> str:
        """The person, or the bot when no person wrote it."""
        return self.message.user or self.message.bot_id or ""

    @property
    def people(self) -> tuple[str, ...]:
        """Whom it mentions."""
        return mentioned(self.message.text)

    @property
    def continues(self) -> bool:
        """Whether it answers a thread that others began."""
        return self.edited_at is None and self.message.thread_ts not in {None, self.message.ts}

    def calls(self, us: Us) -> bool:
        """Whether it is an edit that adds our name."""
        return self.edited_at is not None and us.user_id in self.people and us.user_id not in mentioned(self.before)

    def inbound(
        self,
        us: Us,
        names: Mapping[str, str],
        commands: Set[str],
        *,
        addressed: bool,
        thread: tuple[str, str] = ("", ""),
    ) -> Inbound:
        """With names instead of ids; `thread` is what was said before, with the id of the message if it is only one.

        What is not meant for us can be no command. A text that was shared without a word is forwarded.
        """
        message = self.message
        text = readable(without_mention(message.text, us.user_id) if addressed else message.text, names)
        if addressed:
            text = as_command(text, commands)
        elif text.startswith("/"):
            text = f" {text}"
        shared = [quote for quote in message.attachments if quote.is_share or quote.is_msg_unfurl]
        passed_on = "\n\n".join(readable(quote.text or quote.fallback, names) for quote in shared)
        source = ", ".join(dict.fromkeys(one_line(quote.author_name, 64) or "somebody" for quote in shared))
        quote = (f"Forwarded from {source}:\n{passed_on[:1000]}", "") if shared and text.strip() else thread
        return Inbound(
            address=self.at,
            sender=Sender(self.sender, names.get(self.sender, self.sender), is_bot=message.bot_id is not None),
            text=text if text.strip() else passed_on,
            platform_id=f"{message.ts}:{self.edited_at}" if self.edited_at else message.ts,
            sent_at=datetime.fromtimestamp(float(message.edited_at or message.ts), UTC),
            edits=message.ts if self.edited_at else None,
            private=self.private,
            addressed=addressed,
            attachments=tuple(
                Attachment(file.id, file.name.replace("\0", ""), file.mimetype, file.size)
                for file in (*message.files, *(file for quote in shared for file in quote.files))[:50]
                if not file.is_gone
            ),
            quoted=quote[0],
            quoted_id=quote[1],
            forwarded="" if text.strip() else source,
        )


def as_command(text: str, commands: Set[str]) -> str:
    """`!new` → `/new`: Slack keeps what begins with a slash for itself."""
    command = f"/{text[1:]}"
    return command if text.startswith("!") and parse_command(command)[0] in commands else text


def _parsed(model: type[Model], raw: object) -> Model:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def said(raw: object, us: Us) -> Said | None:
    """None for what nobody said: Slack reports link previews and the like as edits, too. Raises `Unreadable`."""
    event = _parsed(MessageEvent, raw)
    is_edit = event.subtype == EDIT
    message, before = (event.message, event.previous_message) if is_edit else (event, None)
    if message is None or not (message.user or message.bot_id):
        return None
    if is_edit and (message.edited_at is None or (before is not None and before.text == message.text)):
        return None
    private = event.channel_type == "im" or event.channel.startswith("D")
    thread = message.thread_ts or event.thread_ts or ("" if private else message.ts)
    at, edited_at = Address("slack", us.team_id, event.channel, thread), message.edited_at if is_edit else None
    return Said(at, private, message, edited_at, before.text if before else "")


def acted(raw: object, us: Us, commands: Set[str]) -> Inbound:
    """`/claw new` is /new, `/claw how are you` a message, and the press of a button says its value."""
    told = _parsed(Action, raw)
    text = readable(told.text, {}).strip() if told.command else told.text
    typed = as_command(f"!{(text or 'help').lstrip('!/')}", commands) if told.command else ""
    return Inbound(
        address=Address("slack", us.team_id, told.channel_id, told.thread_ts or ""),
        sender=Sender(told.user_id, told.user_name or told.user_id),
        text=typed if typed.startswith("/") else text,
        platform_id=f"action:{told.trigger_id}",
        sent_at=datetime.now(UTC),
        private=told.channel_id.startswith("D") or told.channel_name == "directmessage",
    )
