"""Near-copies among memories: the same fact, said several times, takes one row."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.memory.memories import Kind, Memory
from gateway.memory.lexemes import fold, lexemes

ALIKE, QUOTED = 0.75, 0.8
"""The share of words that near-copies have in common, and that of a row's words which a summary repeats."""
_NEGATION = re.compile(
    r"n't|\b(?:not?|never|without|nicht|kein\w*|nie|ohne|ne|pas|jamais|sans|nunca|sin|nao|sem|non|senza|mai|degil|yok)\b"
    r"|ない|なし|[不没無无]"
)


@dataclass(frozen=True, slots=True)
class Copies:
    """A memory that stands for `count` that say the same, itself included."""

    newest: Memory
    count: int = 1


@dataclass(frozen=True, slots=True)
class _Statement:
    words: frozenset[str]
    exact: frozenset[str]
    """Numbers and ids, in which near-copies don't differ."""
    negated: int

    def repeats(self, other: "_Statement") -> bool:
        same, all_ = len(self.words & other.words), len(self.words | other.words)
        return same >= ALIKE * all_ and (self.exact, self.negated) == (other.exact, other.negated)

    def quotes(self, other: "_Statement") -> bool:
        return len(self.words & other.words) >= QUOTED * len(other.words)


def fold_copies(memories: Sequence[Memory], limit: int) -> list[Copies]:
    """The first `limit` facts in the order of `memories`, each once within a label; summaries of one are dropped."""
    folded: list[tuple[_Statement, Copies]] = []
    for memory in memories:
        said = _statement(memory.text)
        for place, (of, copies) in enumerate(folded):
            if copies.newest.label is memory.label and said.repeats(of):
                newest = max(copies.newest, memory, key=lambda each: each.created_at)
                folded[place] = of, Copies(newest, copies.count + 1)
                break
        else:
            folded.append((said, Copies(memory)))
    return [copies for said, copies in folded if not _is_summary_of_one(said, copies.newest, folded)][:limit]


def _is_summary_of_one(said: _Statement, memory: Memory, folded: Sequence[tuple[_Statement, Copies]]) -> bool:
    if memory.kind is not Kind.SUMMARY:
        return False
    others = (of for of, copies in folded if copies.newest is not memory and copies.newest.label is memory.label)
    return any(said.quotes(of) for of in others)


def _statement(text: str) -> _Statement:
    words = frozenset(lexemes(text))
    exact = frozenset(word for word in words if any(map(str.isdigit, word)))
    return _Statement(words, exact, len(_NEGATION.findall(fold(text))))
