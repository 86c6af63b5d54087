"""Slack's events → what happened, before it is known who is called what and whether we are meant."""

import time
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from channels.slack.markup import mentioned, readable, without_mention
from channels.slack.payloads import Assistant, Envelope, Interaction, Message, MessageEvent, Press, SlashCommand, Us
from gateway.domain.inbound import Address, Attachment, Inbound, Sender
from gateway.domain.routing import parse_command

SAID = (None, "file_share", "thread_broadcast", "me_message", "bot_message")
"""The subtypes of messages that somebody wrote; the others are Slack's."""

Model = TypeVar("Model", bound=BaseModel)


class Unreadable(ValueError):
    """Not what Slack documents; the text says where."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message or an edit; its text is still Slack's markup. `edited_at` is when, for an edit."""

    at: Address
    private: bool
    message: Message
    edited_at: str | None = None

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

    def inbound(
        self, us: Us, names: Mapping[str, str], commands: Set[str], *, addressed: bool, thread: str = ""
    ) -> Inbound:
        """With names instead of ids; `thread` is what was said before. What is not meant for us can be no command."""
        message = self.message
        text = readable(without_mention(message.text, us.user_id) if addressed else message.text, names)
        if addressed:
            text = as_command(text, commands)
        elif text.startswith("/"):
            text = f" {text}"
        shared = "\n\n".join(readable(quote.text, names) for quote in message.attachments if quote.is_share)
        return Inbound(
            address=self.at,
            sender=Sender(self.sender, names.get(self.sender, self.sender), is_bot=message.bot_id is not None),
            text=text,
            platform_id=f"{message.ts}:{self.edited_at}" if self.edited_at else message.ts,
            sent_at=datetime.fromtimestamp(float(self.edited_at or message.ts), UTC),
            edits=message.ts if self.edited_at else None,
            private=self.private,
            addressed=addressed,
            attachments=tuple(
                Attachment(file.id, file.name.replace("\0", ""), file.mimetype, file.size)
                for file in message.files[:50]
                if not file.is_gone
            ),
            quoted=shared[:1000] or thread,
        )


def as_command(text: str, commands: Set[str]) -> str:
    """`!new` → `/new`: Slack keeps what begins with a slash for itself."""
    command = f"/{text[1:]}"
    return command if text.startswith("!") and parse_command(command)[0] in commands else text


def read(envelope: Envelope, us: Us, commands: Set[str]) -> Said | Inbound | Assistant | None:
    """None for what is of no interest; raises `Unreadable`."""
    match envelope.type:
        case "events_api":
            return _event(envelope.payload.get("event"), us)
        case "slash_commands":
            return _command(_parsed(SlashCommand, envelope.payload), us, commands)
        case "interactive" if envelope.payload.get("type") == "block_actions":
            return _press(_parsed(Press, envelope.payload), us)
        case _:
            return None


def _event(event: object, us: Us) -> Said | Assistant | None:
    match event:
        case {"type": "message", "subtype": "message_changed"}:
            return _edit(_parsed(MessageEvent, event), us)
        case {"type": "message" | "app_mention", **about}:
            if about.get("subtype") not in SAID:
                return None
            message = _parsed(MessageEvent, event)
            return _said(message, message, us)
        case {"type": "assistant_thread_started"}:
            return _parsed(Assistant, event)
        case {"type": str()}:
            return None
        case _:
            raise Unreadable("event: none")


def _parsed(model: type[Model], raw: object) -> Model:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _edit(event: MessageEvent, us: Us) -> Said | None:
    """Slack reports link previews and the like as changes, too: only a person's edit counts."""
    now, before = event.message, event.previous_message
    if now is None or now.edited_at is None or (before is not None and before.text == now.text):
        return None
    return _said(event, now, us, now.edited_at)


def _said(event: MessageEvent, message: Message, us: Us, edited_at: str | None = None) -> Said | None:
    """None for our own words, and for Slack's."""
    if us.wrote(message) or not (message.user or message.bot_id):
        return None
    private = event.channel_type == "im" or event.channel.startswith("D")
    thread = message.thread_ts or event.thread_ts or ("" if private else message.ts)
    return Said(Address("slack", us.team_id, event.channel, thread), private, message, edited_at)


def _command(command: SlashCommand, us: Us, commands: Set[str]) -> Inbound:
    """`/claw new` is /new, `/claw how are you` a message."""
    said = readable(command.text, {}).strip()
    text = as_command(f"!{(said or 'help').lstrip('!/')}", commands)
    return _interaction(
        command, us, text if text.startswith("/") else said, f"command:{command.trigger_id}", time.time()
    )


def _press(press: Press, us: Us) -> Inbound:
    id = f"button:{press.message_ts}:{press.action_ts}"
    return _interaction(press, us, press.value, id, float(press.action_ts), press.thread_ts or "")


def _interaction(told: Interaction, us: Us, text: str, id: str, at: float, thread: str = "") -> Inbound:
    return Inbound(
        address=Address("slack", us.team_id, told.channel_id, thread),
        sender=Sender(told.user_id, told.user_name or told.user_id),
        text=text,
        platform_id=id,
        sent_at=datetime.fromtimestamp(at, UTC),
        private=told.is_private,
    )
