"""Records that importers read from other programs' files."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field

from gateway.domain.memory.memories import Category
from gateway.domain.principals import Label

LEARNING = "learning"
"""The tag of what an agent has noted to do better."""
ORIGIN = "import:"
"""How the origin of every imported row begins; the source's name follows."""
MAX_TEXT = 100_000
"""Characters of a message; the rest of a longer one is dropped."""


Role: TypeAlias = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """A conversation; the messages up to the next session are its own. `key` tells it from others of its source."""

    key: str
    started_at: datetime | None
    place: str


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """An imported message; without a `key` of its source it is identified by its content.

    Another person's begins with the name, as in "Bob: hello". `label` is the best that it can get.
    """

    role: Role
    text: str
    at: datetime | None
    place: str
    label: Label
    key: str = ""


class Carried(BaseModel, frozen=True):
    """The facts of a memory that only a passport has; `sources` are the keys of the messages it was learned from."""

    importance: Annotated[float, Field(ge=0, le=1)] = 0.5
    pinned: bool = False
    agent: str = ""
    created_at: datetime | None = None
    valid_to: datetime | None = None
    superseded_at: datetime | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedMemory:
    """A fact; `place` is its file and line, as in "MEMORY.md:12". An instruction is only `proposed` to its person.

    `label` is the best that it can get.
    """

    text: str
    place: str
    label: Label
    category: Category = Category.CONTEXT
    tags: tuple[str, ...] = ()
    at: datetime | None = None
    proposed: bool = False
    carried: Carried = field(default_factory=Carried)


@dataclass(frozen=True, slots=True)
class ImportedTask:
    """An open item of a list of things to do."""

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class Passed:
    """Something that is left out on purpose, such as an item that is done or the output of a tool."""

    why: str


@dataclass(frozen=True, slots=True)
class Damaged:
    """Something that cannot be imported as it is: where it is, and in one line what is wrong."""

    place: str
    why: str


Record: TypeAlias = ImportedSession | ImportedMessage | ImportedMemory | ImportedTask | Passed | Damaged
