"""Erases passages from files, journals and checkpoints.

Texts lose sentences, journals are signed anew, the history of checkpoints is rewritten, and other files are deleted.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from dulwich.objects import Blob, Commit, ObjectID, ShaFile, Tree

from gateway.config.data.erasures import FOLDER
from gateway.config.data.files import open_regular, overwrite
from gateway.domain.ids import EntryId
from gateway.domain.memory.erasing import ERASED, Erasure
from gateway.workspace.checkpoints.history import save_known
from gateway.workspace.checkpoints.store import Additions, Store, open_store
from gateway.workspace.files.access import new_file, open_folder, replacing
from gateway.workspace.files.index import INDEX_FOLDER
from gateway.workspace.files.uploads import PAGES_SUFFIX, TEXT_SUFFIX, UPLOADS
from gateway.workspace.journal.entries import JournalEntry, parse_entries, render_entries

LARGEST = 2**30
_PRINCIPALS = "principals"
_NOT_WALKED = frozenset({"postgres", "keys", "checkpoints", "backups", FOLDER})
"""Of the data folder: rows and checkpoints are cleaned by other means, backups are named, the request goes last."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_JOURNAL = b"<!-- claw "
_PIECE = 2**20


class Fate(StrEnum):
    """The change to a file, or the reason why it stays as it is."""

    CLEANED = "passages removed"
    REMOVED = "removed"
    RENAMED = "renamed"
    LEFT = "holds it still: it is no text, and none of your files"
    TOO_LARGE = "not looked into: too large"


@dataclass(frozen=True)
class Traces:
    """The files of the data folder and the workspace that have the passages, or these entries of journals."""

    erasure: Erasure
    entries: frozenset[EntryId]
    key: bytes
    data: Path
    workspace: Path

    @cached_property
    def readings(self) -> Mapping[Path, str]:
        """The texts with the passages that were read out of own files, with the beginning of each file's hash.

        They are removed last: by them a second try finds these files.
        """
        folders = [root / UPLOADS / "read" for root in (self.workspace, *(self.data / _PRINCIPALS).glob("*"))]
        texts = [(text, folder) for folder in folders for text in folder.rglob("*.txt") if text.is_file()]
        found = (each for each in texts if self.erasure.in_text(each[0].read_text(errors="replace")))
        return {text: text.relative_to(folder).parts[0] for text, folder in found}

    def find(self) -> list[tuple[Path, Fate]]:
        """The changes to the files, in the order to make them. Links are not followed."""
        fates, named = dict[Path, Fate](), list[Path]()
        for root in [self.data] if self.workspace.is_relative_to(self.data) else [self.data, self.workspace]:
            for place, folders, names in os.walk(root):
                here = Path(place)
                if here == self.data:
                    folders[:] = [name for name in folders if name not in _NOT_WALKED]
                for path in (here / name for name in sorted(names)):
                    if fate := self._fate(path):
                        fates |= dict.fromkeys(self._with_derived(path) if fate is Fate.REMOVED else [path], fate)
                named += [here / name for name in (*folders, *names) if self.erasure.in_text(name)]
        renamed = [path for path in reversed(named) if fates.get(path) is not Fate.REMOVED]  # what lies deeper first
        ordered = sorted(fates.items(), key=lambda each: each[0] in self.readings)
        return [*ordered, *((path, Fate.RENAMED) for path in renamed)]

    def root_of(self, path: Path) -> Path | None:
        """The file root of a person in which it lies."""
        others = self.data / _PRINCIPALS
        if path.is_relative_to(self.workspace) or others not in path.parents:
            return self.workspace if path.is_relative_to(self.workspace) else None
        return others / path.relative_to(others).parts[0]

    def cleaned(self, data: bytes) -> bytes | None:
        """A content without the passages; None for one that has some and is no text."""
        if sha256(data).hexdigest()[:16] in self.readings.values():
            return None
        if data.startswith(_JOURNAL) and (entries := parse_entries(data, self.key).entries):
            if any(map(self._concerns, entries)) or self.erasure.in_text(data.decode("utf-8", "replace")):
                return render_entries(map(self._clean_entry, entries), self.key)
            return data
        if data.startswith(_UTF_16):
            return None if self.erasure.in_text(data.decode("utf-16", "replace")) else data
        if not any(self.erasure.in_text(piece.decode("utf-8", "replace")) for piece in _pieces(data)):
            return data
        with suppress(UnicodeDecodeError):
            return b"".join(self.erasure.clean(piece.decode()).encode() for piece in _pieces(data))
        return None

    def without(self, files: Sequence[tuple[Path, Fate]]) -> Callable[[bytes], bytes | None]:
        """As `cleaned`, for checkpoints, which also lose the files that `find` removes."""
        removed = [path for path, fate in files if fate is Fate.REMOVED and not path.is_symlink()]
        hashes = {sha256(path.read_bytes()).digest() for path in removed}
        return lambda data: None if sha256(data).digest() in hashes else self.cleaned(data)

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
                _write(path, self.cleaned(path.read_bytes()) or b"", in_place=path.is_relative_to(self.data / "logs"))
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
        made_again = any(path.is_relative_to(self.data / name) for name in ("journal", INDEX_FOLDER))
        if upload or made_again or (clean is None and self.root_of(path)):
            return Fate.REMOVED
        return Fate.LEFT if clean is None else Fate.CLEANED

    def _with_derived(self, found: Path) -> Iterator[Path]:
        """An upload, what was read out of it, and last what was found, by which a second try finds the others."""
        path = found
        if self._is_upload(path):
            if path.parent.suffix == PAGES_SUFFIX:
                path = path.parent.with_suffix("")
            elif path.suffix == TEXT_SUFFIX and (path in self.readings or path.with_suffix("").exists()):
                path = path.with_suffix("")
            beside = path.with_name(path.name + TEXT_SUFFIX), *path.with_name(path.name + PAGES_SUFFIX).glob("*")
            yield from (each for each in (path, *beside) if each != found and each.exists())
        yield found

    def _is_upload(self, path: Path) -> bool:
        root = self.root_of(path)
        return root is not None and path.relative_to(root).parts[0] == UPLOADS

    def _concerns(self, entry: JournalEntry) -> bool:
        return entry.id in self.entries or self.erasure.in_text(render_entries([entry], self.key).decode())

    def _clean_entry(self, entry: JournalEntry) -> JournalEntry:
        """The entry, without the passages if it has any: then it is a copy of its row and is not stored again."""
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
    with open_folder(path.parent, ()) as at, replacing(at, path.name) as draft, new_file(at, draft, 0o600) as new:
        with suppress(PermissionError):
            os.fchown(new.fileno(), status.st_uid, status.st_gid)
        os.fchmod(new.fileno(), stat.S_IMODE(status.st_mode))
        new.write(data)


@dataclass(slots=True)
class _Rewriting:
    """`clean` gives the content to keep of a file, None for no file; a name that is `left_out` takes its file along."""

    store: Store
    clean: Callable[[bytes], bytes | None]
    left_out: Callable[[str], bool]
    additions: Additions | None
    _new: dict[ObjectID, ObjectID | None] = field(default_factory=dict)

    def history(self) -> Iterator[Commit]:
        """The newest first."""
        commit = self.store.head
        while commit is not None:
            yield commit
            parent = self.store.objects[commit.parents[0]] if commit.parents else None
            commit = parent if isinstance(parent, Commit) else None

    def tree(self, id: ObjectID) -> ObjectID:
        """The id of the folder's cleaned tree; the same id if nothing in it has to be cleaned."""
        if (known := self._new.get(id)) is not None:
            return known
        made, old = Tree(), self.store.objects[id]
        assert isinstance(old, Tree), "a checkpoint refers to it as a folder"
        for name, mode, child in old.items():
            kept = self.tree(child) if stat.S_ISDIR(mode) else self._blob(child)
            if kept is not None and not self.left_out(os.fsdecode(name)):
                made.add(name, mode, kept)
        self._new[id] = self._keep(made)
        return made.id

    def finish(self, moved: Callable[[], None]) -> None:
        """Make the new history the only one; each step can be done again."""
        last: ObjectID | None = None
        for old in reversed([*self.history()]):
            commit = old.copy()
            assert isinstance(commit, Commit), "a copy is of the same kind"
            commit.tree, commit.parents = self.tree(old.tree), [last] if last else []
            last = self._new[commit.id] = self._keep(commit)
        if self.additions and last:
            self.additions.write()
            self.store.move_head(last)
            moved()
            save_known(self.store.folder, last, {}, 0)
            self.store.keep_only({id for id in self._new.values() if id})

    def _blob(self, id: ObjectID) -> ObjectID | None:
        if id not in self._new:
            data = self.store.objects[id].as_raw_string()
            clean = self.clean(data)
            self._new[id] = id if clean == data else None if clean is None else self._keep(Blob.from_string(clean))
        return self._new[id]

    def _keep(self, made: ShaFile) -> ObjectID:
        if self.additions is not None:
            self.additions.add(made)
        return made.id


def rewrite_checkpoints(
    folder: Path,
    clean: Callable[[bytes], bytes | None],
    left_out: Callable[[str], bool],
    moved: Callable[[], None] | None = None,
) -> int:
    """Clean all checkpoints; returns how many had something to clean. Without `moved`, which is called when nobody sees
    the old ones any more, nothing is changed.
    """
    if not folder.is_dir():
        return 0
    with open_store(folder) as store:
        work = _Rewriting(store, clean, left_out, Additions(store.objects) if moved else None)
        changed = len([old for old in work.history() if work.tree(old.tree) != old.tree])
        if moved:
            work.finish(moved)
    return changed
