"""Decides what brings a folder and the map together; pure.

Three states count for each path: as it is here, as it is in the map, and as both were when they last agreed.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import TypeAlias

from gateway.domain.files import FileContent, SharedFile
from gateway.workspace.files.access import TEMPORARY_PREFIX
from gateway.workspace.files.paths import READ_ONLY, WorkspaceError, WorkspacePath, folded

MAX_FILE_BYTES = 100 * 1024**2
NEVER_AT_TOP = READ_ONLY | {"todo"}
"""Names at the top that are not shared: the gateway writes them itself on each machine."""
NEVER = frozenset({".git", "node_modules", ".venv", "__pycache__"})
"""Folders that a program makes again, or that single files of another machine would break."""
CONFLICT = ".conflict-"
MANY = 5
"""So many files may be gone at once without a question."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A file here, and its mtime."""

    content: FileContent
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Push:
    """Store the content, then set the row, if it still has this version; 0: if there is none."""

    path: str
    content: FileContent
    version: int


@dataclass(frozen=True, slots=True)
class Retract:
    """Note in the map that the file was deleted here."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Pull:
    """Fetch the content into the place of `over`, which is what must still be there. `beside` is kept, as that name."""

    path: str
    content: FileContent
    over: FileContent | None = None
    beside: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete the file here, if this is still in it."""

    path: str
    over: FileContent


_folded = lru_cache(maxsize=4_096)(folded)

Action: TypeAlias = Push | Retract | Pull | Drop


@dataclass(frozen=True, slots=True)
class Plan:
    """`agreed` is what is the same on both sides, None: no file; `refused` says why a path is left alone."""

    actions: tuple[Action, ...] = ()
    agreed: Mapping[str, FileContent | None] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def excluded(parts: tuple[str, ...]) -> bool:
    """Whether no machine ever gets this: the gateway's own folders, half-written files, what programs make again."""
    own = _folded(parts[0]) in NEVER_AT_TOP or parts[-1].startswith(TEMPORARY_PREFIX)
    return own or not NEVER.isdisjoint(parts)


def plan(
    here: Mapping[str, Seen],
    base: Mapping[str, FileContent],
    rows: Mapping[str, SharedFile],
    left_out: Set[str] = frozenset(),
    nobodys: Set[str] = frozenset(),
    *,
    gone_on_purpose: bool = False,
) -> Plan:
    """The actions, in the order of the paths. Paths in `left_out`, and all below them, are not touched; `nobodys` are
    hashes of the files that a new workspace is filled with, which give way to any other content.

    Raises `WorkspaceError` with code `gone` if it looks as if the folder was lost, unless that is on purpose.
    """
    if not gone_on_purpose:
        _check_gone(here, base, rows, nobodys)
    names = _Names(here)
    actions, agreed, refused = list[Action](), dict[str, FileContent | None](), dict[str, str]()
    for path in sorted({*here, *base, *rows}):
        seen, row, known = here.get(path), rows.get(path), base.get(path)
        local, remote = _content(seen), _content(row)
        if any(above in left_out for above in _above(path)):
            continue
        if local == remote:
            agreed[path] = local
            continue
        known = _gives_way(local, known, remote, nobodys) if local and row else known
        action = _action(path, seen, known, row, here)
        why = names.problem(path, action.content) if isinstance(action, Pull) else ""
        if why:
            refused[path] = why
        else:
            actions.append(action)
    return Plan(tuple(actions), agreed, refused)


def _action(
    path: str, seen: Seen | None, known: FileContent | None, row: SharedFile | None, here: Mapping[str, Seen]
) -> Action:
    local, remote, version = _content(seen), _content(row), row.version if row else 0
    if local and (row is None or (remote in (None, known) and local != known)):
        return Push(path, local, version)
    if remote and local is None:
        return Retract(path, version) if remote == known else Pull(path, remote)
    if remote and (local == known or (local and local.sha256 == remote.sha256)):
        return Pull(path, remote, local)
    if remote and seen:
        return Pull(path, remote, local, beside=_beside(path, seen, here))
    assert local is not None, "both sides differ, and one of them has the file"
    return Drop(path, local)


def _content(of: Seen | SharedFile | None) -> FileContent | None:
    return of.content if of else None


def _gives_way(
    local: FileContent, known: FileContent | None, remote: FileContent | None, nobodys: Set[str]
) -> FileContent | None:
    """The content that counts as known: text that a new workspace was filled with is not a change, on either side."""
    if known is None:
        return next((each for each in (local, remote) if each and each.sha256 in nobodys), None)
    return local if _made_anew(local, known, nobodys) else known


def _made_anew(local: FileContent, known: FileContent, nobodys: Set[str]) -> bool:
    """Whether it looks as if a workspace was filled anew; anybody can empty a file."""
    return local.size > 0 and local.sha256 in nobodys and known.sha256 not in nobodys


def _check_gone(
    here: Mapping[str, Seen], base: Mapping[str, FileContent], rows: Mapping[str, SharedFile], nobodys: Set[str]
) -> None:
    """A disk that is not mounted, or a folder made anew, must not delete the files of all machines."""
    known = [path for path in base if path in rows and rows[path].content]
    gone = sum(path not in here for path in known)
    anew = any(path in here and _made_anew(here[path].content, base[path], nobodys) for path in known)
    if (anew and gone) or (gone > MANY and gone * 2 > len(known)):
        cure = (
            "`supaclaw files sync DIR --missing restore` brings them back, `--missing delete` deletes them everywhere"
        )
        raise WorkspaceError(
            "gone", f"{gone} of {len(known)} files are missing here, so nothing is synchronised; {cure}."
        )


def _beside(path: str, seen: Seen, here: Mapping[str, Seen]) -> str | None:
    """The name under which the content that lost is kept; None if it is kept already, by a try before."""
    day = datetime.fromtimestamp(seen.modified_ns / 1e9, UTC)
    folder, slash, name = path.rpartition("/")
    stem, dot, extension = name.rpartition(".") if "." in name.lstrip(".") else (name, "", "")
    stem = stem.encode()[:180].decode("utf-8", "ignore")
    beside = f"{folder}{slash}{stem}{CONFLICT}{day:%Y-%m-%d}-{seen.content.sha256[:8]}{dot}{extension}"
    kept = here.get(beside)
    return None if kept and kept.content.sha256 == seen.content.sha256 else beside


def _above(path: str) -> Iterator[str]:
    """The path and the folders that it is in."""
    yield path
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


class _Names:
    """The names that are in use here, as the most lenient file system compares them."""

    def __init__(self, here: Mapping[str, Seen]) -> None:
        self._here = here

    @cached_property
    def _used(self) -> dict[str, str]:
        return {_compared(path): path for path in self._here}

    def problem(self, path: str, content: FileContent) -> str:
        """Why this must not be written here; it is in use from now on."""
        try:
            where = WorkspacePath.parse(path)
        except WorkspaceError as error:
            return str(error)
        if str(where) != path or not where.parts or excluded(where.parts):
            return "this path is never synchronised"
        if content.size > MAX_FILE_BYTES:
            return f"it has {content.size >> 20:,} MB; the limit is {MAX_FILE_BYTES >> 20} MB"
        used = self._used.setdefault(_compared(path), path)
        return "" if used == path else f"some systems take its name for that of {used}; rename one of them"


def _compared(path: str) -> str:
    return "/".join(map(_folded, path.split("/")))
