"""What was made of a file, or why nothing was."""

from dataclasses import asdict, dataclass
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from gateway.domain.json import Json, JsonObject

Kind = Literal[
    "pdf", "image", "document", "sheet", "slides", "page", "book", "text", "code", "table", "archive", "audio", "video",
    "unknown",
]  # fmt: skip


class Unreadable(Exception):
    """One line for people: why a file was not read, or not further; what was read until then is kept."""


@dataclass(frozen=True, slots=True)
class Derived:
    """What lies in the target folder, and what is told of the file.

    `mime` is what the bytes are, whatever was claimed. `pages` counts the pages read, which are `001.txt` and so on.
    `text` and `view` are file names, "" when there is none. `problem` is one line for people, "" when all was read.
    """

    kind: Kind
    mime: str
    pages: int
    characters: int
    text: str
    view: str
    description: str
    problem: str

    def to_json(self) -> JsonObject:
        """As it leaves the CPU process."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Json) -> "Derived":
        """Raises `ValueError` for what `to_json` has not made."""
        try:
            return TypeAdapter(cls).validate_python(value)
        except ValidationError as exc:
            raise ValueError("that is not what a file was made into") from exc
