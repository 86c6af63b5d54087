"""Entries of a transcript: the only record of a conversation, and the checkpoint a resumed turn starts from."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from gateway.domain.attachments import Attached
from gateway.domain.ids import MessageId
from gateway.domain.model import Image, ToolCall


@dataclass(frozen=True, slots=True)
class UserText:
    """What a person said. `id` is None for text that is not a stored message. `images` are for this turn's eyes."""

    text: str
    sent_at: datetime
    sender: str = ""
    id: MessageId | None = None
    attachments: tuple[Attached, ...] = ()
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class AssistantText:
    """What the agent said: an answer, or words before tool calls (`final` false)."""

    text: str
    final: bool = True


@dataclass(frozen=True, slots=True)
class ToolIntent:
    """A call, stored before it runs. Its key (task, `ordinal`) never changes, so a resumed run can find its result."""

    call: ToolCall
    ordinal: int


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the call answered, as JSON text."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What compaction kept of everything before it."""

    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Said by the gateway itself (a command's reply, an error); shown to people, never to the model."""

    text: str


Entry: TypeAlias = UserText | AssistantText | ToolIntent | ToolResult | Summary | Notice
