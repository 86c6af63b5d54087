"""Tasks: durable units of work, each one row, which also queues it; and the input of an `agent` task."""

import html
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel

from gateway.domain.conversation.model import ModelsExhausted, Reply
from gateway.domain.conversation.transcript import AssistantText, Notice
from gateway.domain.ids import AddressId, MemoryId, MessageId, PrincipalId, ScheduleId, SessionId, TaskId
from gateway.domain.principals import Label
from gateway.domain.text.marks import without_copied_marks
from gateway.domain.text.texts import letters_in


class Lane(StrEnum):
    """A class of worker slots; lanes do not starve each other."""

    CHAT = "chat"
    AGENTS = "agents"
    FILES = "files"
    CPU = "cpu"


SLOTS = {Lane.CHAT: 200, Lane.AGENTS: 16, Lane.FILES: 4, Lane.CPU: 1}
"""Concurrent runs per process; `FILES` are fetched in parallel, then processed one by one by the CPU process."""

LEASE_SECONDS = 30.0
BEAT_SECONDS = 5.0
DEATHS_ALONE = 3
"""So often may a run be all that can have killed the process; being there with others is no fault."""


class Status(StrEnum):
    """The status of a task; the last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    PENDING_SUBTASK = "pending_subtask"
    NEEDS_HUMAN_REVIEW = "needs_human_review"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether the task is over."""
        return self in (Status.COMPLETED, Status.FAILED, Status.CANCELLED)


@dataclass(frozen=True, slots=True)
class Claim:
    """One run of a task. Every write of the run carries (`id`, `token`): the fence."""

    id: TaskId
    token: int
    kind: str
    lane: Lane
    principal_id: PrincipalId
    session_id: SessionId | None
    agent: str
    attempts: int
    max_attempts: int
    alone: int = 0
    """How often nothing else can have killed the process, less the deaths while it was held back."""
    silent_for: timedelta | None = None
    """How long ago, at the claim, a process that lost its lease was last heard of; None: none has lost it."""

    @property
    def suspect(self) -> bool:
        """Whether it may end without an answer."""
        return self.alone > 0 or self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether all attempts are used up: then this run may only end the task and report it."""
        return self.give_ups > 0

    @property
    def give_ups(self) -> int:
        """How many runs were left nothing but that, this one included."""
        return max(0, self.attempts - self.max_attempts, self.alone - DEATHS_ALONE + 1)


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run of this process that is over, whatever came of it."""

    task: TaskId
    token: int
    began: datetime
    ended: datetime


def backoff(attempts: int) -> float:
    """Seconds to wait after that many failed attempts: 1, 3, 7 … 60."""
    return float(min(60, 2**attempts - 1))


class Assignment(BaseModel, frozen=True, extra="forbid"):
    """A prompt for an unattended run, and where to deliver its result.

    It goes to `address`; if that is gone or None, to the chat on `channel`; else to the last private chat.
    """

    prompt: str
    name: str
    """Its name for people: the schedule's name, or the trigger's source."""
    origin: str
    """`schedule`, `trigger`, or `task` for a node of a tree."""
    label: Label = Label.UNTRUSTED
    deliver: bool = True
    address: AddressId | None = None
    channel: str | None = None
    history: bool = False
    """Whether the run sees the conversation at `address`."""
    schedule: ScheduleId | None = None
    slot: datetime | None = None
    private: bool = False
    """For a node: whether its person asked for the tree, so that it may use memory."""
    call: int | None = None
    """For a subtask: the parent's tool call that made it."""
    started_in: SessionId | None = None
    """For a tree that a conversation with others' words has started: that conversation."""

    fork: TaskId | None = None
    """For a fork and all below it: the fork, which asks before every act and has a copy of the files."""
    forked_from: TaskId | None = None
    """For a fork: the task whose conversation it continues."""
    asked: MessageId | None = None
    """For a fork: its prompt, in that conversation."""
    model: str | None = None
    """For a fork: the model that is asked instead of its agent's."""

    @property
    def heading(self) -> str:
        """From whom its result is said to be; a task is named after what may be anybody's words."""
        return "a task in the background" if self.origin == "task" else self.name


QUIET = "nothing to report"
"""The answer that is not delivered."""


_BEFORE = re.compile(
    r"\A.*(?:</(?:think(?:ing)?|thought|reasoning)>|◁/think▷|<\|message\|>)", re.DOTALL | re.IGNORECASE
)
_MARKUP = re.compile(r"(?im)<(?:[/|]?[a-z]|!--)[^<>\n]{0,80}>|^[ \t]*(?:`{3,}|~{3,})[a-z]*[ \t]*$")
_DOUBT = re.compile("[?？⁉❓❗❌⛔⚠🚨🔥🛑🆘💔🔴]")
_SHORT = 400
"""Characters of a text with its markup that may be such a word; the check is linear in any case."""


def is_quiet(text: str, word: str) -> bool:
    """Whether the text is just this word or phrase, in any case, punctuation, markup, and after thinking or a stamp.

    With a question mark or a sign of warning it is something else.
    """
    said = _BEFORE.sub("", text).strip()
    if len(said) > _SHORT:
        return False
    plain = html.unescape(_MARKUP.sub("", without_copied_marks(said)))
    return letters_in(plain).replace("okay", "ok") == letters_in(word) and not _DOUBT.search(plain)


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The end of a turn: the agent's answer, or a notice from the gateway that says why there is none."""

    entry: AssistantText | Notice
    reply: Reply | None = None
    status: Status = Status.COMPLETED
    error: str | None = None
    problem: ModelsExhausted | None = None
    """Why no model answered."""
    label: Label = Label.UNTRUSTED
    """The label of all that the run had read."""
    reminded: tuple[MemoryId, ...] = ()
    """The memories it was reminded of."""
    limit: str | None = None
    """The limit that ended it early."""

    @classmethod
    def failed(cls, why: str) -> "TurnResult":
        """A notice that the run failed."""
        return cls(Notice(why), status=Status.FAILED, error=why)

    @property
    def origin(self) -> str:
        """The author of its text."""
        return "agent" if isinstance(self.entry, AssistantText) else "gateway"
