"""Memories, searches of them, and the interface of embedding models."""

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.domain.ids import MemoryId, MessageId, PrincipalId, SessionId
from gateway.domain.principals import Label

DEFAULT_AGENT = "default"


class Kind(StrEnum):
    """The kinds of rows in memory."""

    TURN = "turn"
    MEMORY = "memory"
    SUMMARY = "summary"
    CHUNK = "chunk"


KIND_NAMES: Mapping[str, Kind] = {"turn": Kind.TURN, "memory": Kind.MEMORY, "summary": Kind.SUMMARY, "file": Kind.CHUNK}
"""As people and models name what they look for."""


class Category(StrEnum):
    """The categories of memories."""

    PREFERENCE = "preference"
    DECISION = "decision"
    FACT = "fact"
    CONTEXT = "context"
    PROJECT = "project"
    PERSON = "person"
    CORRECTION = "correction"


class SearchMode(StrEnum):
    """How to search; `AUTO` is hybrid where an embedder is at hand, else by keyword."""

    AUTO = "auto"
    KEYWORD = "keyword"
    SEMANTIC = "semantic"
    HYBRID = "hybrid"


class SearchScope(StrEnum):
    """The part of memory to search; `AUTO` begins with this session's summaries and pinned memories."""

    AUTO = "auto"
    CURRENT = "current"
    ALL = "all"


class MemoryRefused(SupaclawError):
    """The change is refused; the text says what would work."""

    code = "refused"


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A memory, or a summary, to be stored; `importance` is 0–1, `created_at` None means now.

    It may replace `supersedes`, but no memory that is trusted more than itself.
    """

    text: str
    category: Category = Category.CONTEXT
    importance: float = 0.5
    tags: tuple[str, ...] = ()
    pinned: bool = False
    language: str | None = None
    label: Label = Label.UNTRUSTED
    origin: str = ""
    agent: str = DEFAULT_AGENT
    session: SessionId | None = None
    sources: tuple[MessageId, ...] = ()
    event_at: datetime | None = None
    created_at: datetime | None = None
    supersedes: MemoryId | None = None
    kind: Kind = Kind.MEMORY


@dataclass(frozen=True, slots=True)
class Memory:
    """A row of memory. `role` says who spoke, in a turn; `path` and `page` where a chunk stands.

    A turn's text, and when it was created, are its message's. `superseded_at` is set by a newer one, `superseded_by`,
    and `forgotten_at` by a person, who may take it back.
    """

    id: MemoryId
    principal_id: PrincipalId
    kind: Kind
    text: str
    category: Category | None
    importance: float
    tags: tuple[str, ...]
    pinned: bool
    label: Label
    origin: str
    agent: str
    session_id: SessionId | None
    message_id: MessageId | None
    role: str
    path: str | None
    page: int | None
    event_at: datetime | None
    created_at: datetime
    valid_to: datetime | None
    superseded_by: MemoryId | None
    superseded_at: datetime | None
    forgotten_at: datetime | None
    seen_count: int


@dataclass(frozen=True, slots=True)
class MemoryFilter:
    """Which rows count; an empty tuple or None: any. `tags`: all of them; `until` is exclusive.

    Rows less trusted than `at_most`, or less important than `min_importance`, are left out; `superseded` shows what was
    replaced, too.
    """

    kinds: tuple[Kind, ...] = ()
    categories: tuple[Category, ...] = ()
    tags: tuple[str, ...] = ()
    session: SessionId | None = None
    agent: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    at_most: Label = Label.KNOWN
    pinned: bool | None = None
    superseded: bool = False
    min_importance: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """Which rows somebody may see and change: those of `agent`, or with None all.

    `shared`: sees the owner's as well, but for what is untrusted. What a program remembers, nobody else trusts.
    """

    agent: str | None
    shared: bool = False

    @property
    def everything(self) -> bool:
        """Whether it is the owner's."""
        return self.agent is None

    def shows(self, memory: Memory) -> bool:
        """Whether the row may be seen."""
        return self.changes(memory) or (self.shared and memory.agent == DEFAULT_AGENT and memory.label <= Label.KNOWN)

    def changes(self, memory: Memory) -> bool:
        """Whether the row may be forgotten."""
        return self.everything or memory.agent == self.agent

    def rewords(self, memory: Memory) -> bool:
        """Whether its words may be others, under the label that it has."""
        return self.everything or (memory.agent == self.agent and memory.label is Label.UNTRUSTED)

    def filters(self, which: MemoryFilter) -> tuple[MemoryFilter, ...]:
        """The filters whose rows together are what may be seen of `which`."""
        if self.everything:
            return (which,)
        own = replace(which, agent=self.agent, at_most=Label.UNTRUSTED)
        owners = replace(which, agent=DEFAULT_AGENT, at_most=min(which.at_most, Label.KNOWN))
        return (own, owners) if self.shared else (own,)

    def written(self, new: NewMemory) -> NewMemory:
        """As it is stored."""
        return new if self.agent is None else replace(new, agent=self.agent, label=Label.UNTRUSTED)


ALL_MEMORIES = MemoryAccess(agent=None)


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """A row that was found; `words` is its share of the query's IDF mass, 0–1."""

    memory: Memory
    score: float
    words: float
    cosine: float | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A search's hits; `left_out` counts untrusted rows; `note` says why it was by keyword only, else ""."""

    hits: tuple[MemoryHit, ...]
    mode: SearchMode
    weak: bool
    left_out: int
    note: str
    replaced: Mapping[MemoryId, Memory] = field(default_factory=dict)
    """The memories that hold now, by the hits that state what held before."""


def content_hash(text: str) -> bytes:
    """The same for texts that differ in case, width and space only."""
    return hashlib.sha256(" ".join(unicodedata.normalize("NFKC", text).casefold().split()).encode()).digest()


Vector: TypeAlias = tuple[float, ...]
"""Vectors of unit length: the product of two is their cosine."""


class EmbeddingUnavailable(TryAgainLater):
    """There is no vector now; the text says why, in one line. A search continues by keyword."""

    refused = ""
    """The text that the model refuses, which may take others; "" for any other reason."""


class Embedder(Protocol):
    """One embedding model. Questions and what they are asked of may be embedded differently."""

    @property
    def name(self) -> str:
        """The name that its vectors are stored under, such as `litellm:openai/text-embedding-3-small`.

        Vectors of different names are never compared.
        """

    @property
    def dimensions(self) -> int | None:
        """The length of its vectors; None until a model of a provider has given its first one."""

    async def query(self, text: str, /) -> Vector:
        """The vector of a question; a local model answers within 300 ms, or two seconds while it is loaded.

        Raises `EmbeddingUnavailable`.
        """

    async def passages(self, texts: Sequence[str], /) -> tuple[Vector, ...]:
        """The vectors of texts to be found, in their order. Raises `EmbeddingUnavailable`."""


class Embedders(Protocol):
    """Finds the embedding model of now."""

    def __call__(self, name: str | None = None, /) -> Embedder | None:
        """The configured model, or with the name of stored vectors the one that made them; None if there is none."""


def no_embedder(_name: str | None = None, /) -> None:
    """Return None: there are no embedding models here."""
