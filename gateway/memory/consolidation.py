"""The sources of memories: requests to remember, and the proposals of a model that consolidates memories."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, count
from pathlib import Path

import structlog
from pydantic import BaseModel, Field, ValidationError

from gateway.domain.conversation.model import Prompt, SystemMessage, UserMessage
from gateway.domain.ids import MemoryId
from gateway.domain.memory.memories import Category, Kind, Memory, NewMemory
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line, storable
from gateway.domain.text.tokens import estimate
from gateway.memory.wording import day, memory_line

_REQUEST = re.compile(
    r"""(?:please\s+|bitte\s+)?
        (?:remember(?:\s+this|\s+that)?|don['’]t\s+forget(?:\s+that)?|note\s+to\s+self|keep\s+in\s+mind(?:\s+that)?
          |merk(?:e)?\s+dir(?:\s+bitte)?|vergiss\s+nicht|denk\s+(?:bitte\s+)?daran
          |recuerda(?:\s+que)?|no\s+olvides(?:\s+que)?|hatırla|unutma)(?!\w)
        \s*[:,\-–—、：]?\s*(?:dass\s+)?""",
    re.VERBOSE | re.IGNORECASE,
)
_MIN_LENGTH, _MAX_LENGTH = 3, 4_000


def memory_request(text: str) -> str:
    """The text to remember, of a message that begins with "remember that …" or similar; "" for any other."""
    found = _REQUEST.match(text.strip())
    if found is None:
        return ""
    rest = text.strip()[found.end() :].strip()
    return rest if _MIN_LENGTH <= len(rest) <= _MAX_LENGTH and not rest.endswith("?") else ""


MAX_PROPOSALS = 5
MAX_PROPOSAL_LENGTH = 300
ROW_OVERHEAD_TOKENS = 100
"""For the text around the rows."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ShownMemories:
    """The memories and turns in one prompt; results are trusted as its least trusted row, `label`."""

    label: Label
    rows: Sequence[Memory]


class _Read(BaseModel, extra="forbid", frozen=True, strict=True, defer_build=True):
    """Part of a model's reply; a field of another type makes it invalid."""


class Replaced(_Read):
    """An old memory that a new one contradicts."""

    old: MemoryId
    new: MemoryId
    sure: bool


class _Proposed(_Read):
    text: str
    category: Category = Field(strict=False)
    sources: list[MemoryId] = Field(alias="from", min_length=1)


class _Reply(_Read):
    same: list[list[MemoryId]] = []
    replaced: list[Replaced] = []
    remember: list[_Proposed] = []


@dataclass(frozen=True, slots=True)
class ConsolidationVerdict:
    """The valid part of a model's reply; of each group of `same` the first memory is kept."""

    same: Sequence[Sequence[MemoryId]] = ()
    replaced: Sequence[Replaced] = ()
    proposals: Sequence[NewMemory] = ()


@cache
def _instructions() -> str:
    return Path(__file__).with_name("consolidation.md").read_text().strip()


def consolidation_prompt(material: ShownMemories) -> Prompt:
    """The prompt that asks for duplicates, replaced memories and missing ones."""
    record = "\n".join(map(_row_line, material.rows))
    marker = next(marker for n in count(1) if (marker := f"=== memory {n} ===") not in record)
    return Prompt((SystemMessage(_instructions()), UserMessage(f"{marker}\n{record}\n{marker}\nTidy this memory.")))


def fitting_material(material: ShownMemories, budget: int) -> ShownMemories:
    """The newest rows that fit into a prompt of `budget` tokens."""
    sizes = accumulate(estimate(_row_line(row)) + 1 for row in reversed(material.rows))
    most = sum(size <= budget - estimate(_instructions()) - ROW_OVERHEAD_TOKENS for size in sizes)
    return replace(material, rows=material.rows[len(material.rows) - most :])


def read_verdict(reply: str, shown: ShownMemories) -> ConsolidationVerdict:
    """The parts of a reply that name only shown rows and follow the rules; none if the reply is malformed."""
    try:
        found = _Reply.model_validate_json(reply[reply.find("{") : reply.rfind("}") + 1])
    except ValidationError as exc:
        log.info("memory.consolidation_unreadable", errors=exc.error_count())
        return ConsolidationVerdict()
    facts = {row.id: row for row in shown.rows if row.kind is Kind.MEMORY}
    messages = {row.id: row.message_id for row in shown.rows if row.message_id is not None}
    same, replaced, used = list[list[MemoryId]](), list[Replaced](), set[MemoryId]()
    for group in found.same:
        usable = len(set(group)) == len(group) > 1 and facts.keys() - used >= set(group)
        if usable and len({facts[id].category for id in group}) == 1:
            same.append(group)
            used.update(group)
    for pair in found.replaced:
        usable = facts.keys() - used >= {pair.old, pair.new}
        if usable and facts[pair.old].created_at < facts[pair.new].created_at:
            replaced.append(pair)
            used.add(pair.old)
    proposals = [
        NewMemory(text, each.category, label=shown.label, sources=tuple(messages[turn] for turn in each.sources))
        for each in found.remember
        if messages.keys() >= set(each.sources) and (text := one_line(storable(each.text), MAX_PROPOSAL_LENGTH))
    ]
    return ConsolidationVerdict(same, replaced, proposals[:MAX_PROPOSALS])


def _row_line(row: Memory) -> str:
    return f"{row.id} {day(row)} {memory_line(row)}"
