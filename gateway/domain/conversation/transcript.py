"""Entries of a transcript: the only record of a conversation, and the checkpoint from which a turn resumes."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from gateway.domain.conversation.attachments import Attached
from gateway.domain.conversation.model import Image, ToolCall
from gateway.domain.ids import MessageId


@dataclass(frozen=True, slots=True)
class UserText:
    """A person's message. `id` is None for text that is not a stored message.

    `images`, and what memory had to say to it (`recalled`), are for this turn only. A `wordless` one only brought the
    results of a client's tools.
    """

    text: str
    sent_at: datetime
    sender: str = ""
    id: MessageId | None = None
    attachments: tuple[Attached, ...] = ()
    images: tuple[Image, ...] = ()
    recalled: str = ""
    wordless: bool = False


@dataclass(frozen=True, slots=True)
class AssistantText:
    """The agent's text: an answer, or words before tool calls (`final` false)."""

    text: str
    final: bool = True


@dataclass(frozen=True, slots=True)
class ToolIntent:
    """A call, stored before it runs. Its key (task, `ordinal`) never changes, so a resumed run can find its result.

    `handed` ones are never run here: the program that asked runs its own tools.
    """

    call: ToolCall
    ordinal: int
    handed: bool = False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call, as JSON."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary that compaction made of everything before it."""

    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A message from the gateway itself (a command's reply, an error); shown to people, never to the model."""

    text: str


Entry: TypeAlias = UserText | AssistantText | ToolIntent | ToolResult | Summary | Notice
