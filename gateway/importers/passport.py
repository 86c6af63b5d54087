"""A passport: memories with times and sources, each line sealed by the gateway that knows how far to trust it."""

import hmac
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

from pydantic import AliasPath, BaseModel, Field, JsonValue

from gateway.domain.ids import PrincipalId
from gateway.domain.json import OBJECT
from gateway.domain.memory.imports import (
    Carried,
    Damaged,
    ImportedMemory,
    ImportedMessage,
    ImportedSession,
    Passed,
    Record,
    Role,
)
from gateway.domain.memory.memories import Category, Kind
from gateway.domain.principals import Label
from gateway.domain.text.texts import json_text
from gateway.importers import Part, Source
from gateway.importers.records.files import Reader, read_head
from gateway.workspace.journal.writer import journal_key

FILE = "memories.jsonl"


class _Message(BaseModel):
    message: Annotated[int, Field(ge=0, lt=2**63)]
    session: UUID
    who: str
    at: datetime
    text: str
    trust: str = ""

    @property
    def key(self) -> str:
        """Its key in an import."""
        return f"{self.session}:{self.message}"


class _Line(Carried):
    """A memory, as `supaclaw memories export` writes it."""

    kind: Kind
    text: str
    category: Category | None
    tags: tuple[str, ...]
    trust: str
    event_at: datetime | None
    messages: tuple[_Message, ...] = Field((), validation_alias=AliasPath("learned_from", "messages"))


def seal_of(data: Path, principal: PrincipalId) -> Callable[[str], str]:
    """The function that seals lines of one person: their MAC by the key of this gateway's journals."""
    key = journal_key(data / "keys" / "journal")
    return lambda text: hmac.digest(key, f"passport\0{principal}\0{text}".encode(), "sha256").hex()


def sealed(line: str, seal: Callable[[str], str]) -> str:
    """A line with its seal."""
    fields = OBJECT.validate_json(line)
    return json_text({**fields, "mac": seal(_canonical(fields))})


def _canonical(fields: dict[str, JsonValue]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def _unsealed(text: str, reader: Reader) -> tuple[dict[str, JsonValue], bool]:
    """The fields of a line, and whether this gateway has sealed them."""
    fields = OBJECT.validate_json(text)
    mac = str(fields.pop("mac", ""))
    return fields, hmac.compare_digest(mac.encode(), reader.seal(_canonical(fields)).encode())


def is_foreign(path: Path, reader: Reader) -> bool:
    """Whether it is a passport whose first line this gateway has not sealed."""
    with suppress(ValueError):
        return path.is_file() and _is_passport(path) and not _unsealed(next(reader.lines(path)).text, reader)[1]
    return True


def _read(path: Path, reader: Reader) -> Iterator[Record]:
    if path.is_dir():
        yield from (Passed("transcripts") for _ in path.glob("transcripts/*.jsonl"))
        return
    for line in reader.lines(path):
        place = f"{path.name}:{line.number}"
        try:
            yield from _records(line.text, place, reader)
        except (ValueError, RecursionError):
            yield Damaged(place, "this line is not a memory as `supaclaw export` writes it; skipped")


def _records(text: str, place: str, reader: Reader) -> Iterator[Record]:
    """Yield the messages that a memory was learned from, and the memory."""
    fields, own = _unsealed(text, reader)
    row = _Line.model_validate(fields)
    if row.kind is not Kind.MEMORY or row.category is None:
        yield Passed("summaries")
        return

    def label(trust: str) -> Label:
        best = Label.OWNER if own else Label.KNOWN if reader.vouched else Label.UNTRUSTED
        return max(best, Label.__members__.get(trust.upper(), Label.UNTRUSTED))

    for said in row.messages:
        yield ImportedSession(str(said.session), None, place)
        role: Role = "user" if said.who == "user" else "assistant"
        yield ImportedMessage(role, said.text, said.at, place, label(said.trust), said.key)
    carried = row.model_copy(update={"sources": tuple(said.key for said in row.messages)})
    yield ImportedMemory(row.text, place, label(row.trust), row.category, row.tags, row.event_at, carried=carried)


def _is_passport(path: Path) -> bool:
    file = path / FILE if path.is_dir() else path
    return file.is_file() and b'"superseded_at"' in read_head(file)


def _parts(path: Path) -> list[Part]:
    return [Part("passport", path / FILE)] if path.is_dir() else []


SOURCES = {"passport": Source("what `supaclaw export` wrote", _is_passport, _read, _parts, labelled=True)}
