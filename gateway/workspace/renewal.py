"""The files that came from the template, in an older workspace: renewed as long as nobody edited them."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher, unified_diff
from pathlib import Path

import structlog

from gateway.domain.errors import OwnerMustAct
from gateway.domain.principals import Label
from gateway.workspace.paths import WorkspaceError
from gateway.workspace.prompts import MAX_BYTES
from gateway.workspace.template import RELEASED, TEMPLATE, template_files
from gateway.workspace.tree import Workspace

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
        """What was edited and what the template changed together; None if both changed the same lines."""
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
        """What a merge would change in the file; where it cannot be merged, what the template changed."""
        merged = self.merged
        name, before, after = ("before", self.base, self.new) if merged is None else ("mine", self.mine, merged)
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
        return "".join(unified_diff(old, new, f"{name}/{self.path}", f"template/{self.path}"))


async def renew(workspace: Workspace, template: Path = TEMPLATE) -> None:
    """Replace each file that is an earlier version of the template's, word for word."""
    for renewal in [each for each in renewals(workspace, template) if not each.edited]:
        try:
            await workspace.write(renewal.path, renewal.new, Label.OWNER, unlocked=True)
        except WorkspaceError as error:
            log.warning("workspace.not_renewed", file=renewal.path, error=str(error))
        else:
            log.info("workspace.renewed", file=renewal.path)


async def merge(workspace: Workspace, renewal: Renewal) -> None:
    """Write what was edited and what the template changed together; `OwnerMustAct`: those are the same lines."""

    def merged(mine: str) -> str:
        text = replace(renewal, mine=mine).merged
        if text is None:
            raise OwnerMustAct(f"you and the template changed the same lines of {renewal.path}: edit it by hand")
        return text

    await workspace.update(renewal.path, merged, Label.OWNER, unlocked=True)


def renewals(workspace: Workspace, template: Path = TEMPLATE) -> Iterator[Renewal]:
    """Every file that comes from an earlier version of the template. One that is not there was deleted."""
    for source in template_files(template):
        for path in (str(source), f".agents/{source}"):
            with suppress(WorkspaceError):
                if (mine := workspace.head(path, _LONGEST, MAX_BYTES)) is not None:
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
