"""The input of an `agent` task."""

import re
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from gateway.domain.ids import AddressId, MessageId, ScheduleId, TaskId
from gateway.domain.principals import Label


class Assignment(BaseModel):
    """A prompt for an unattended run, and where to deliver its result.

    It goes to `address`; if that is gone or None, to the chat on `channel`; else to the last private chat.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str
    name: str
    """Its name for people: the schedule's name, or the trigger's source."""
    origin: str
    """`schedule`, `trigger`, or `task` for a node of a tree."""
    label: Label = Label.OWNER
    deliver: bool = True
    address: AddressId | None = None
    channel: str | None = None
    history: bool = False
    """Whether the run sees the conversation at `address`."""
    schedule: ScheduleId | None = None
    slot: datetime | None = None
    private: bool = False
    """Of a node: whether its tree was asked for by its person, so that it may use memory."""
    call: int | None = None
    """Of a subtask: the parent's tool call that made it."""

    fork: TaskId | None = None
    """Of a fork and of all below it: the fork, which asks before every act and has a copy of the files."""
    forked_from: TaskId | None = None
    """Of a fork: the task whose conversation it goes on with."""
    asked: MessageId | None = None
    """Of a fork: its prompt, in that conversation."""
    model: str | None = None
    """Of a fork: which model is asked instead of its agent's."""

    @property
    def heading(self) -> str:
        """From whom its result is said to be; a task is named after what may be anybody's words."""
        return "a task in the background" if self.origin == "task" else self.name


QUIET = "nothing to report"
"""The answer that is not delivered."""


def is_quiet(text: str, word: str) -> bool:
    """Whether the text is just this word or phrase, ignoring case, quotes, emphasis and punctuation."""
    said = r"\s+".join(map(re.escape, word.split()))
    return re.fullmatch(rf"[\W_]*{said}[\W_]*", text, re.IGNORECASE) is not None
