"""A file in a conversation, as turns, people and lists see it."""

from dataclasses import dataclass
from typing import Literal

from gateway.domain.ids import FileId, MessageId

State = Literal["waiting", "stored", "failed"]


@dataclass(frozen=True, slots=True)
class Attached:
    """A file that came with a message, or that the agent sent with one.

    While `waiting`, it has neither `id` nor `path`. `path` is below the principal's file root, and so are `text_path`,
    the extracted text ("" if there is none; `problem` says why), and `view_path`, an image small enough for a model.
    `description` is one line. `size` is in bytes, 0 if unknown. `excerpt` is the text itself, if short and requested.
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
