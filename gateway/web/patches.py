"""Changes to a page: how a list of keyed pieces of HTML becomes another one, in as few steps as is easy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TypeAlias, assert_never

from gateway.domain.json import Json
from gateway.web.live import to_json


@dataclass(frozen=True, slots=True)
class Replace:
    """The element with this id becomes another one, perhaps with another id."""

    id: str
    html: str


@dataclass(frozen=True, slots=True)
class Insert:
    """A new element behind the one with the id `after`, or in front of all."""

    after: str
    html: str


@dataclass(frozen=True, slots=True)
class Remove:
    """The element goes away."""

    id: str


@dataclass(frozen=True, slots=True)
class Append:
    """More content at the end of an element; what it holds stays untouched."""

    id: str
    html: str


@dataclass(frozen=True, slots=True)
class Fill:
    """An element's content becomes this."""

    id: str
    html: str


@dataclass(frozen=True, slots=True)
class Running:
    """Whether an answer is being written."""

    now: bool


Patch: TypeAlias = Replace | Insert | Remove | Append | Fill | Running


def encoded(patches: Sequence[Patch]) -> str:
    """As `ui.js` reads it: a list of [what, where, html]."""
    return to_json([_encoded(patch) for patch in patches])


def _encoded(patch: Patch) -> Json:
    match patch:
        case Replace(id, html):
            return ["replace", id, html]
        case Insert(after, html):
            return ["insert", after, html]
        case Remove(id):
            return ["remove", id]
        case Append(id, html):
            return ["append", id, html]
        case Fill(id, html):
            return ["fill", id, html]
        case Running(now):
            return ["running", now]
        case _:
            assert_never(patch)


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[Patch]:
    """What turns one list (id → HTML, in order) into the other; applied in order, no id is ever there twice."""
    old, new = list(before), list(after)
    removed: list[Patch] = []
    changed: list[Patch] = []
    for kind, i, i_end, j, j_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            changed += [Replace(key, after[key]) for key in old[i:i_end] if before[key] != after[key]]
            continue
        for gone, come in zip_longest(old[i:i_end], new[j:j_end]):
            if gone is not None and come is not None and gone not in after and come not in before:
                changed.append(Replace(gone, after[come]))
                continue
            if gone is not None:
                removed.append(Remove(gone))
            if come is not None:
                changed.append(Insert(new[new.index(come) - 1] if new.index(come) else "", after[come]))
    return [*removed, *changed]
