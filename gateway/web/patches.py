"""Changes to a page: how a list of keyed pieces of HTML becomes another one, in as few steps as is easy."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Literal, NamedTuple

from gateway.web.live import to_json


class Patch(NamedTuple):
    """One step, in the words of `ui.js`: what to do, to the element with which id, and with what HTML.

    replace: it becomes another element, perhaps with another id. insert: a new one comes behind it, or in front of all.
    append: more content at its end; what it holds stays untouched. fill: its content becomes this. running: not an id,
    but whether an answer is being written.
    """

    what: Literal["replace", "insert", "remove", "append", "fill", "running"]
    where: str | bool
    html: str = ""


def encoded(patches: Sequence[Patch]) -> str:
    """As `ui.js` reads it."""
    return to_json(patches)


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[Patch]:
    """What turns one list (id → HTML, in order) into the other; applied in order, no id is ever there twice."""
    old, new = list(before), list(after)
    removed: list[Patch] = []
    changed: list[Patch] = []
    for kind, i, i_end, j, j_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            changed += [Patch("replace", key, after[key]) for key in old[i:i_end] if before[key] != after[key]]
            continue
        for gone, come in zip_longest(old[i:i_end], new[j:j_end]):
            if gone is not None and come is not None and gone not in after and come not in before:
                changed.append(Patch("replace", gone, after[come]))
                continue
            if gone is not None:
                removed.append(Patch("remove", gone))
            if come is not None:
                changed.append(Patch("insert", new[new.index(come) - 1] if new.index(come) else "", after[come]))
    return [*removed, *changed]
