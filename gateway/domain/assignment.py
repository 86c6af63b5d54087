"""What an `agent` task was given to do: the `input` of its row."""

import re
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from gateway.domain.ids import AddressId, ScheduleId
from gateway.domain.principals import Label


class Assignment(BaseModel):
    """A prompt for a run that nobody waits for, and where what it has to tell goes.

    It goes to `address`; where that is gone, or None, to the chat on `channel`; else to the last private chat.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str
    name: str
    """How people are told of it: the schedule's name, the trigger's source."""
    origin: str
    """`schedule` or `trigger`."""
    label: Label = Label.OWNER
    deliver: bool = True
    address: AddressId | None = None
    channel: str | None = None
    history: bool = False
    """With the conversation that is held at `address`."""
    schedule: ScheduleId | None = None
    slot: datetime | None = None


QUIET = "nothing to report"
"""The answer that is told to nobody."""


def is_quiet(text: str, word: str) -> bool:
    """Whether the text says this and nothing else, however it is set: case, quotes, emphasis, a full stop."""
    said = r"\s+".join(map(re.escape, word.split()))
    return re.fullmatch(rf"[\W_]*{said}[\W_]*", text, re.IGNORECASE) is not None
