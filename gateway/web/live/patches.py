"""Page patches: the steps that turn one list of keyed HTML pieces into another; few, not minimal."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Literal, NamedTuple

from gateway.web.live.sse import to_json


class Patch(NamedTuple):
    """One step for `ui.js`: what to do, the id of the element, and the HTML.

    replace: replace the element; its id may change. insert: add a new one after it, or first if the id is empty.
    append: add content at its end. fill: set its content. running: `where` is not an id but whether an answer is being
    written.
    """

    what: Literal["replace", "insert", "remove", "append", "fill", "running"]
    where: str | bool
    html: str = ""


def encoded(patches: Sequence[Patch]) -> str:
    """Encode patches for `ui.js`."""
    return to_json(patches)


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[Patch]:
    """The patches from one list (id → HTML, in order) to the other; applied in order, ids stay unique at every step."""
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
