"""What a turn emits while it runs; sinks turn these into rows, drafts and traces."""

from dataclasses import dataclass
from typing import TypeAlias

from gateway.domain.conversation.model import Reply, Restarted, TextDelta, Waiting
from gateway.domain.conversation.transcript import ToolIntent, ToolResult, UserText
from gateway.domain.principals import Label


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
    label: Label = Label.OWNER
    """How far what it returned is trusted."""


@dataclass(frozen=True, slots=True)
class Steered:
    """Messages that arrived during the turn and join it; `label` is that of the least trusted."""

    messages: tuple[UserText, ...]
    label: Label = Label.OWNER


@dataclass(frozen=True, slots=True)
class Answered:
    """The turn ended with this answer. `stopped_by` names the limit that ended it early, else it is None."""

    text: str
    stopped_by: str | None = None


TurnEvent: TypeAlias = TextDelta | Restarted | Waiting | ModelReplied | ToolFinished | Steered | Answered
