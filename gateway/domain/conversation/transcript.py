"""Entries of a transcript with their files, and the events of a running turn that become entries, drafts and traces.

The transcript is the only record of a conversation, and the checkpoint from which a turn resumes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from gateway.domain.conversation.model import (
    Image,
    ProviderFields,
    Reply,
    Restarted,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    Waiting,
)
from gateway.domain.ids import FileId, MessageId
from gateway.domain.principals import Label

AttachmentState = Literal["waiting", "stored", "failed"]


@dataclass(frozen=True, slots=True)
class Attached:
    """A file that came with a message, or that the agent sent with one.

    While `waiting`, it has neither `id` nor `path`. `path` is below the principal's file root, and so are `text_path`,
    the extracted text ("" if there is none; `problem` says why), and `view_path`, an image small enough for a model.
    `description` is one line. `size` is in bytes, 0 if unknown. `excerpt` is the text itself, if short and requested.
    """

    message_id: MessageId
    place: int
    state: AttachmentState
    name: str
    mime: str
    size: int = 0
    id: FileId | None = None
    path: str = ""
    text_path: str = ""
    view_path: str = ""
    pages: int = 0
    description: str = ""
    problem: str = ""
    excerpt: str = ""


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
    """The agent's text: an answer, or words before tool calls (`final` false).

    An answer has the provider's `fields` of its reply; a reply with calls has them with the first of these.
    """

    text: str
    final: bool = True
    fields: ProviderFields | None = None


@dataclass(frozen=True, slots=True)
class ToolIntent:
    """A call, stored before it runs. Its key (task, `ordinal`) never changes, so a resumed run can find its result.

    `handed` ones are never run here: the program that asked runs its own tools.
    """

    call: ToolCall
    ordinal: int
    handed: bool = False
    fields: ProviderFields | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call, as JSON; `images` are for this turn only."""

    call_id: str
    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary that compaction made of everything before it."""

    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A message from the gateway itself (a command's reply, an error); shown to people, never to the model."""

    text: str


Entry: TypeAlias = UserText | AssistantText | ToolIntent | ToolResult | Summary | Notice


@dataclass(frozen=True, slots=True)
class ModelReplied:
    """A model call finished. `intents` must be stored before the loop resumes: it runs them next."""

    reply: Reply
    intents: tuple[ToolIntent, ...]


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool call finished; parallel calls are reported in the order they finish."""

    intent: ToolIntent
    result: ToolResult
    failed: bool
    duration_ms: int
    label: Label
    """How far what it returned is trusted."""


@dataclass(frozen=True, slots=True)
class Steered:
    """Messages that arrived during the turn and join it; `label` is that of the least trusted.

    With `instead`, they belong to what the turn had just answered: the reply is dropped, and the turn goes on.
    """

    messages: tuple[UserText, ...]
    label: Label
    instead: Reply | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The turn ended with this answer. `stopped_by` names the limit that ended it early, else it is None."""

    text: str
    stopped_by: str | None = None


TurnEvent: TypeAlias = (
    TextDelta | ThinkingDelta | Restarted | Waiting | ModelReplied | ToolFinished | Steered | Answered
)
