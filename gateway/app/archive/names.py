"""What may be in an archive: pure rules, by which it is written and by which it is read."""

from itertools import takewhile

from gateway.app.archive.manifest import CONFIG, DATABASE, KEYS, PRINCIPALS, WORKSPACE, Kind

TREES = frozenset({WORKSPACE, PRINCIPALS})
"""Folders kept as they are, with folders and links in them."""

NOT_KEYS = ("postgres.", "local-token")
"""Beginnings of files in `keys/` that belong to one machine: passwords of its database, a token new at every start."""

_LONGEST = 4096


def allowed(name: str, kind: Kind) -> bool:
    """Whether an entry of this name may be there at all; where its folder has to be is for `Places`."""
    parts = name.split("/")
    if not all(map(_plain, parts)) or len(name) > _LONGEST:
        return False
    match parts:
        case [tree, _, *_] if tree in TREES:
            return True
        case [only]:
            return kind == "file" and only == CONFIG
        case [folder, key] if folder == KEYS:
            return kind == "file" and not key.startswith(NOT_KEYS)
        case [folder, file] if folder == DATABASE:
            return kind == "file" and file.endswith(".copy")
        case _:
            return False


def stays_inside(name: str, target: str) -> bool:
    """Whether a link at `name` leads to a place in the same file root, whatever else in it is a link.

    Climbing is allowed only at the beginning, where the folders climbed through are known to be folders.
    """
    tree, *above, _ = name.split("/")
    depth = len(above) - (tree == PRINCIPALS)
    parts = target.rstrip("/").split("/")
    climbs = len(list(takewhile(lambda part: part == "..", parts)))
    return climbs <= depth and all(map(_plain, parts[climbs:])) and len(target) <= _LONGEST


def shown(name: str) -> str:
    """A name as the manifest writes it: bytes that are no UTF-8 are spelt out, and no two names become the same."""
    return name.replace("\\", "\\\\").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Places:
    """The names seen so far: each once, each in a folder that came before it."""

    def __init__(self) -> None:
        self._folders = set(TREES)
        self._taken = set(TREES)

    def take(self, name: str, kind: Kind) -> bool:
        """Whether an entry may be there."""
        parent = name.rpartition("/")[0]
        if name in self._taken or (name.split("/", maxsplit=1)[0] in TREES and parent not in self._folders):
            return False
        self._taken.add(name)
        if kind == "folder":
            self._folders.add(name)
        return True


def _plain(part: str) -> bool:
    return part not in {"", ".", ".."} and "\0" not in part
