"""A file in a conversation: what a turn, a person and a list are told of it."""

from dataclasses import dataclass
from typing import Literal

from gateway.domain.ids import FileId, MessageId

State = Literal["waiting", "stored", "failed"]


@dataclass(frozen=True, slots=True)
class Attached:
    """A file that came with a message, or that the agent sent with one.

    While it is `waiting` there is neither `id` nor `path`. `path` lies below the principal's file root, and so do
    `text_path`, the assembled text ("" when there is none, `problem` says why), and `view_path`, a picture small enough
    for a model. `description` is one line. `size` is in bytes, 0 while unknown. `excerpt` is the text itself, where it
    is short and was asked for.
    """

    message_id: MessageId
    place: int
    state: State
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
