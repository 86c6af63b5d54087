"""Writing Git packs piece by piece: every checkpoint is one pack, and many small ones become one."""

import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path

from dulwich.object_format import DEFAULT_OBJECT_FORMAT
from dulwich.objects import ObjectID, ShaFile
from dulwich.pack import OFS_DELTA, pack_header_chunks, write_pack_index, write_pack_object

from gateway.workspace.checkpoints.object_store import sync_folder

_COUNT_AT = 8


@contextmanager
def new_pack(folder: Path) -> Iterator["PackWriter"]:
    """A pack in the making; nothing can be seen of it until `finish`. At most one at a time for a store."""
    draft = folder / "next.pack.new"
    with open(draft, "w+b") as file:
        try:
            yield PackWriter(file, folder)
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()


class PackWriter:
    """Takes objects one after another."""

    def __init__(self, file: BufferedRandom, folder: Path) -> None:
        self._file = file
        self._folder = folder
        self._places: dict[bytes, tuple[int, int]] = {}
        for chunk in pack_header_chunks(0):
            self._file.write(chunk)

    def __contains__(self, id: ObjectID) -> bool:
        return bytes.fromhex(id.decode()) in self._places

    def __len__(self) -> int:
        return len(self._places)

    def add(self, object: ShaFile) -> None:
        """Write the whole object, once."""
        if object.id not in self:
            self._write(object.id, object.type_num, object.as_raw_chunks())

    def add_delta(self, id: ObjectID, base: ObjectID, delta: Sequence[bytes]) -> None:
        """Write the object as what it differs in from `base`, which is in the pack already."""
        distance = self._file.tell() - self._places[bytes.fromhex(base.decode())][0]
        self._write(id, OFS_DELTA, (distance, list(delta)))

    def finish(self) -> str:
        """Make it part of the store, on disk when this returns; the pack's name."""
        checksum = self._close()
        name = f"pack-{checksum.hex()}"
        index = self._folder / "next.idx.new"
        entries = sorted((id, offset, crc) for id, (offset, crc) in self._places.items())
        with open(index, "wb") as file:
            write_pack_index(file, entries, checksum, version=2)
            file.flush()
            os.fsync(file.fileno())
        Path(self._file.name).rename(self._folder / f"{name}.pack")
        # A pack without an index is not looked at: this is the moment at which it is there.
        index.rename(self._folder / f"{name}.idx")
        sync_folder(self._folder)
        return name

    def _write(self, id: ObjectID, type: int, content: list[bytes] | tuple[bytes | int, list[bytes]]) -> None:
        offset = self._file.tell()
        crc = write_pack_object(self._file.write, type, content, DEFAULT_OBJECT_FORMAT)
        self._places[bytes.fromhex(id.decode())] = (offset, crc)

    def _close(self) -> bytes:
        """Put in how many objects there are, and the checksum over everything."""
        self._file.seek(_COUNT_AT)
        self._file.write(struct.pack(">I", len(self._places)))
        self._file.seek(0)
        checksum = hashlib.file_digest(self._file, "sha1").digest()
        self._file.seek(0, os.SEEK_END)
        self._file.write(checksum)
        self._file.flush()
        os.fsync(self._file.fileno())
        return checksum
