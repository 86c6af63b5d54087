"""Putting small packs together, so that years of checkpoints stay small.

What changed from checkpoint to checkpoint is then stored as its difference from the next newer version.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from dulwich.object_format import DEFAULT_OBJECT_FORMAT
from dulwich.objects import ObjectID, ShaFile, Tree
from dulwich.pack import create_delta, load_pack_index

from gateway.workspace.checkpoints.object_store import ObjectStore, sync_folder
from gateway.workspace.checkpoints.packs import PackWriter, new_pack

MANY = 50
"""Packs that are left alone."""

LONGEST_CHAIN = 40
_LARGEST_DELTA = 1024 * 1024
"""A larger file is stored whole: finding differences costs time and memory."""


def repack(objects: ObjectStore) -> int:
    """Put the small packs together if there are many; how many packs there are then."""
    indexes = list(objects.packs.glob("*.idx"))
    if len(indexes) <= MANY:
        return len(indexes)
    packs = {index.stem: _ids(index) for index in indexes}
    chosen = small({name: len(ids) for name, ids in packs.items()})
    with new_pack(objects.packs) as new:
        _fill(objects, set().union(*(packs[name] for name in chosen)), new)
        name = new.finish()
    for old in chosen - {name}:
        (objects.packs / f"{old}.idx").unlink()
    _remove_without_index(objects.packs)
    return len(packs) - len(chosen) + 1


def small(sizes: Mapping[str, int]) -> set[str]:
    """Those that are together no larger than half of the next one: so nothing is copied often."""
    chosen: set[str] = set()
    total = 0
    for name, size in sorted(sizes.items(), key=lambda item: item[1]):
        if len(chosen) > MANY // 2 and size > 2 * total:
            break
        chosen.add(name)
        total += size
    return chosen


def _ids(index: Path) -> set[ObjectID]:
    with closing(load_pack_index(index, DEFAULT_OBJECT_FORMAT)) as opened:
        return set(opened)


def _remove_without_index(packs: Path) -> None:
    """What is replaced, and what a crash left."""
    for pack in packs.glob("*.pack"):
        if not pack.with_suffix(".idx").exists():
            pack.unlink()
    sync_folder(packs)


def _fill(objects: ObjectStore, ids: set[ObjectID], new: PackWriter) -> None:
    newer: dict[tuple[int, str], tuple[ShaFile, int]] = {}
    for path, id in _newest_first(objects, set(ids)):
        object = objects.objects[id]
        base, depth = newer.get((object.type_num, path), (object, LONGEST_CHAIN))
        delta = _delta(base, object) if depth < LONGEST_CHAIN else None
        if delta is None:
            new.add(object)
        else:
            new.add_delta(id, base.id, delta)
        newer[object.type_num, path] = (object, 0 if delta is None else depth + 1)
    for id in ids:
        if id not in new:
            new.add(objects.objects[id])


def _newest_first(objects: ObjectStore, left: set[ObjectID]) -> Iterator[tuple[str, ObjectID]]:
    """The objects of `left` with the path at which a checkpoint has them; each is taken out of it."""
    for commit in objects.history():
        if not left:
            return
        if commit.id in left:
            left.remove(commit.id)
            yield "", commit.id
        yield from _below(objects, commit.tree, "", left)


def _below(objects: ObjectStore, id: ObjectID, path: str, left: set[ObjectID]) -> Iterator[tuple[str, ObjectID]]:
    if id not in left:
        return
    left.remove(id)
    yield path, id
    object = objects.objects[id]
    if isinstance(object, Tree):
        for item in object.items():
            yield from _below(objects, item.sha, f"{path}/{item.path!r}", left)


def _delta(base: ShaFile, object: ShaFile) -> list[bytes] | None:
    """How `object` differs from `base`, None if that is no saving."""
    if max(base.raw_length(), object.raw_length()) > _LARGEST_DELTA:
        return None
    delta = list(create_delta(base.as_raw_string(), object.as_raw_string()))
    return delta if sum(map(len, delta)) < object.raw_length() // 2 else None
