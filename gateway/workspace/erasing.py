"""Files without what is erased: texts lose sentences, journals are signed anew, what is no text goes whole."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from secrets import token_hex

from gateway.config.data.files import open_regular, overwrite
from gateway.domain.erasing import ERASED, Erasure
from gateway.domain.ids import EntryId
from gateway.workspace.atomic import new_file, replacing
from gateway.workspace.descent import open_folder
from gateway.workspace.incoming import UPLOADS
from gateway.workspace.journal.entry import Entry
from gateway.workspace.journal.format import parse, render
from gateway.workspace.names import PAGES, TEXT

LARGEST = 2**30
_PRINCIPALS = "principals"
_NOT_WALKED = frozenset({"postgres", "keys", "checkpoints", "backups"})
"""Of the data folder: rows and checkpoints are cleaned by other means, backups are named."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_JOURNAL = b"<!-- claw "
_PIECE = 2**20


class Fate(StrEnum):
    """What becomes of a file, or why nothing does."""

    CLEANED = "passages removed"
    REMOVED = "removed"
    RENAMED = "renamed"
    LEFT = "holds it still: it is no text, and none of your files"
    TOO_LARGE = "not looked into: too large"


@dataclass(frozen=True, slots=True)
class Traces:
    """The files of the data folder and the workspace that have the passages, or these entries of journals."""

    erasure: Erasure
    entries: frozenset[EntryId]
    key: bytes
    data: Path
    workspace: Path

    def find(self) -> list[tuple[Path, Fate]]:
        """What has to be done, in this order. Follows no link."""
        fates, named = dict[Path, Fate](), list[Path]()
        inside = self.workspace.is_relative_to(self.data)
        for root in [self.data] if inside else [self.data, self.workspace]:
            for place, folders, names in os.walk(root):
                here = Path(place)
                if here == self.data:
                    folders[:] = [name for name in folders if name not in _NOT_WALKED]
                for path in (here / name for name in sorted(names)):
                    if fate := self._fate(path):
                        fates |= dict.fromkeys(self._with_derived(path) if fate is Fate.REMOVED else [path], fate)
                named += [here / name for name in (*folders, *names) if self.erasure.in_text(name)]
        renamed = [path for path in reversed(named) if fates.get(path) is not Fate.REMOVED]  # what lies deeper first
        return [*fates.items(), *((path, Fate.RENAMED) for path in renamed)]

    def root_of(self, path: Path) -> Path | None:
        """The file root of a person in which it lies."""
        others = self.data / _PRINCIPALS
        if path.is_relative_to(self.workspace) or others not in path.parents:
            return self.workspace if path.is_relative_to(self.workspace) else None
        return others / path.relative_to(others).parts[0]

    def cleaned(self, data: bytes) -> bytes | None:
        """A content without the passages; None for one that has some and is no text."""
        if data.startswith(_JOURNAL) and (entries := parse(data, self.key).entries):
            if any(map(self._concerns, entries)) or self.erasure.in_text(data.decode("utf-8", "replace")):
                return render(map(self._clean_entry, entries), self.key)
            return data
        if data.startswith(_UTF_16):
            return None if self.erasure.in_text(data.decode("utf-16", "replace")) else data
        if not any(self.erasure.in_text(piece.decode("utf-8", "replace")) for piece in _pieces(data)):
            return data
        try:
            return b"".join(self.erasure.clean(piece.decode()).encode() for piece in _pieces(data))
        except UnicodeDecodeError:
            return None

    def carry_out(self, path: Path, fate: Fate) -> None:
        """Do to a file what `find` said; on disk when it returns."""
        match fate:
            case Fate.REMOVED:
                path.unlink(missing_ok=True)
                with suppress(OSError):
                    path.parent.rmdir()
            case Fate.RENAMED:
                ending = "" if path.is_dir() or self.erasure.in_text(path.suffix) else path.suffix
                path.rename(path.with_name(f"erased-{token_hex(4)}{ending}"))
            case Fate.CLEANED:
                data = self.cleaned(path.read_bytes())
                _write(path, data or b"", in_place=path.is_relative_to(self.data / "logs"))
            case Fate.LEFT | Fate.TOO_LARGE:
                pass

    def _fate(self, path: Path) -> Fate | None:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return Fate.REMOVED if self.erasure.in_text(os.readlink(path)) else None
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > LARGEST:
            return Fate.TOO_LARGE
        upload, data = self._is_upload(path), path.read_bytes()
        clean = self.cleaned(data)
        if clean == data:
            return Fate.REMOVED if upload and self.erasure.in_text(path.name) else None
        if upload or path.is_relative_to(self.data / "journal") or (clean is None and self.root_of(path)):
            return Fate.REMOVED
        return Fate.LEFT if clean is None else Fate.CLEANED

    def _with_derived(self, found: Path) -> Iterator[Path]:
        """An upload, what was read out of it, and last what was found, by which a second try finds the others."""
        path = found
        if self._is_upload(path):
            if path.parent.suffix == PAGES:
                path = path.parent.with_suffix("")
            elif path.suffix == TEXT and path.with_suffix("").exists():
                path = path.with_suffix("")
            beside = path.with_name(path.name + TEXT), *path.with_name(path.name + PAGES).glob("*")
            yield from (each for each in (path, *beside) if each != found and each.exists())
        yield found

    def _is_upload(self, path: Path) -> bool:
        root = self.root_of(path)
        return root is not None and path.relative_to(root).parts[0] == UPLOADS

    def _concerns(self, entry: Entry) -> bool:
        return entry.id in self.entries or self.erasure.in_text(render([entry], self.key).decode())

    def _clean_entry(self, entry: Entry) -> Entry:
        """What arrived is a copy of its row from now on, and nothing that may still have to be stored."""
        if not self._concerns(entry):
            return entry
        clean = self.erasure.clean
        text = ERASED if entry.id in self.entries else clean(entry.text)
        return replace(entry, inbound=None, text=text, who=clean(entry.who), files=tuple(map(clean, entry.files)))


def _pieces(data: bytes) -> Iterator[bytes]:
    """Of a megabyte or more, each to the end of a line."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + _PIECE) + 1 or len(data)
        yield data[start:end]
        start = end


def _write(path: Path, data: bytes, *, in_place: bool) -> None:
    """As what is there, by mode and owner; `in_place` what a server appends to."""
    if in_place:
        with open_regular(path, os.O_WRONLY) as file:
            overwrite(file, data)
            os.fsync(file)
        return
    status = path.lstat()
    with (
        open_folder(path.parent, ()) as folder,
        replacing(folder, path.name) as draft,
        new_file(folder, draft, 0o600) as new,
    ):
        with suppress(PermissionError):
            os.fchown(new.fileno(), status.st_uid, status.st_gid)
        os.fchmod(new.fileno(), stat.S_IMODE(status.st_mode))
        new.write(data)
