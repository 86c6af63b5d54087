"""The first files of a new workspace, and their renewal in an older one as long as nobody edited them."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher, unified_diff
from pathlib import Path

import structlog

from gateway.config.data.files import sync_to_disk
from gateway.domain.errors import OwnerMustAct, required
from gateway.domain.principals import Label
from gateway.logs.errors import logged
from gateway.workspace.files.paths import READ_ONLY, WorkspaceError
from gateway.workspace.files.tree import Workspace
from gateway.workspace.instructions import MAX_PERSONA_BYTES

TEMPLATE = Path(__file__).parents[2] / "workspace_template"
"""Beside the `gateway` package, in the source tree as in the wheel."""
RELEASED = ".released"
"""In the template: `N/PATH` is the text of a file in release N, kept there when the next one changes it."""

_UNFINISHED = ".template"
_NOT_OURS = frozenset({"lost+found"})


def fill_new_workspace(root: Path, template: Path = TEMPLATE) -> bool:
    """Copy the template into a missing or empty folder; whether it did.

    Anything else is left as it is, so a file the owner deleted stays deleted. A copy that a crash broke off goes on.
    """
    root.mkdir(parents=True, exist_ok=True)
    staging = root / _UNFINISHED
    if not staging.exists() and any(path.name not in _NOT_OURS and not is_reserved(path) for path in root.iterdir()):
        return False
    staging.mkdir(exist_ok=True)
    for source in template_files(template):
        if not (root / source).exists():
            (root / source).parent.mkdir(parents=True, exist_ok=True)
            sync_to_disk(shutil.copyfile(template / source, staging / source.name))
            os.rename(staging / source.name, root / source)
    shutil.rmtree(staging)
    return True


def is_reserved(path: Path) -> bool:
    """Whether it is one of the gateway's folders, empty: where it is mounted, it is made before the first start."""
    return path.name in READ_ONLY and not path.is_symlink() and path.is_dir() and not any(path.iterdir())


def template_files(template: Path = TEMPLATE) -> Iterator[Path]:
    """The files that a new workspace gets, in the order of their paths."""
    found = (path.relative_to(template) for path in sorted(template.rglob("*")) if path.is_file())
    return (path for path in found if path.parts[0] != RELEASED)


def template_hashes(template: Path = TEMPLATE) -> frozenset[str]:
    """Of every file that any release put into new workspaces, and of an empty one: nobody else's words are in them."""
    texts = (path.read_bytes() for path in template.rglob("*") if path.is_file())
    return frozenset(hashlib.sha256(text).hexdigest() for text in (b"", *texts))


log = structlog.get_logger(__name__)

_OWN = 0.5
"""Of the lines of a released version; a file that has fewer of them is somebody's own."""
_LONGEST = 100_000
"""Bytes of a file that are compared; what is longer is no file of instructions."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """A file of the workspace that comes from `base`, an earlier version of the template's `new`."""

    path: str
    mine: str
    base: str
    new: str

    @property
    def edited(self) -> bool:
        """Whether somebody wrote in it, so that it is theirs to decide."""
        return self.mine != self.base

    @property
    def merged(self) -> str | None:
        """The edits merged with the template's changes; None if both changed the same lines."""
        base, mine, new = (text.splitlines(keepends=True) for text in (self.base, self.mine, self.new))
        unchanged = SequenceMatcher(None, base, mine, autojunk=False).get_matching_blocks()
        lines, done = [], 0
        for change, start, end, new_start, new_end in SequenceMatcher(None, base, new, autojunk=False).get_opcodes():
            if change == "equal":
                continue
            block = next((each for each in unchanged if each.a <= start and end <= each.a + each.size), None)
            if block is None:
                return None
            at = block.b + start - block.a
            lines += [*mine[done:at], *new[new_start:new_end]]
            done = at + end - start
        return "".join([*lines, *mine[done:]])

    def diff(self) -> str:
        """A diff of the changes that a merge makes to the file, or of the template's changes if it cannot be merged."""
        merged = self.merged
        name, before, after = ("before", self.base, self.new) if merged is None else ("mine", self.mine, merged)
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
        return "".join(unified_diff(old, new, f"{name}/{self.path}", f"template/{self.path}"))


async def renew_files(workspace: Workspace, template: Path = TEMPLATE) -> None:
    """Replace each file that is an earlier version of the template's, word for word."""
    for renewal in [each for each in renewals(workspace, template) if not each.edited]:
        with logged(log, "workspace.not_renewed", WorkspaceError, file=renewal.path):
            await workspace.write(renewal.path, renewal.new, Label.OWNER, unlocked=True)
            log.info("workspace.renewed", file=renewal.path)


async def merge_renewal(workspace: Workspace, renewal: Renewal) -> None:
    """Write what was edited and what the template changed together; `OwnerMustAct`: those are the same lines."""

    def merged(mine: str) -> str:
        both = OwnerMustAct(f"you and the template changed the same lines of {renewal.path}: edit it by hand")
        return required(replace(renewal, mine=mine).merged, both)

    await workspace.update(renewal.path, merged, Label.OWNER, unlocked=True)


def renewals(workspace: Workspace, template: Path = TEMPLATE) -> Iterator[Renewal]:
    """Every file that comes from an earlier version of the template. One that is not there was deleted."""
    for source in template_files(template):
        for path in (str(source), f".agents/{source}"):
            with suppress(WorkspaceError):
                if (mine := workspace.head(path, _LONGEST, MAX_PERSONA_BYTES)) is not None:
                    yield from _renewal(template, source, path, mine.data.decode("utf-8", "replace"))
                    break


def _renewal(template: Path, source: Path, path: str, mine: str) -> Iterator[Renewal]:
    new = (template / source).read_text(encoding="utf-8")
    released = _released(template, source)
    if released and mine != new and (base := _base(mine, [new, *released])) != new:
        yield Renewal(path, mine, base, new)


def _released(template: Path, source: Path) -> list[str]:
    """Its versions before, the latest first."""
    folders = sorted((template / RELEASED).glob("*"), key=lambda folder: int(folder.name), reverse=True)
    return [path.read_text(encoding="utf-8") for folder in folders if (path := folder / source).exists()]


def _base(mine: str, versions: list[str]) -> str:
    """The version with the most of its lines in `mine`, the latest of several, and if no version has many."""

    def kept(version: str) -> tuple[float, int]:
        lines = version.splitlines()
        blocks = SequenceMatcher(None, lines, mine.splitlines(), autojunk=False).get_matching_blocks()
        same = sum(block.size for block in blocks)
        return same / max(1, len(lines)), same

    best = mine if mine in versions else max(versions, key=kept)
    return best if kept(best)[0] > _OWN else versions[0]
