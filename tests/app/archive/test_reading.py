"""Archives that somebody damaged, cut, made up or made to do harm: each is one clear line, and nothing is written."""

import gzip
import hashlib
import io
import random
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.app.archive import examine
from gateway.app.archive.manifest import Dumped, Manifest, Member
from gateway.app.archive.writing import ArchiveWriter, appearing
from gateway.domain.errors import OwnerMustAct

Change = Callable[[Manifest], Manifest]


def manifest_of(writer: ArchiveWriter) -> Manifest:
    return Manifest(
        format=1,
        id="a1",
        program="0.1.0",
        schema_number=1,
        created=datetime(2026, 1, 1, tzinfo=UTC),
        postgres="18.0",
        secrets=False,
        left_out=(),
        tables=(Dumped(name="meta", columns=("key", "value"), rows=1),),
        counters={},
        members=tuple(writer.members),
    )


def archive(path: Path, change: Change = lambda manifest: manifest) -> Path:
    with appearing(path) as file, ArchiveWriter(file, path.parent) as writer:
        writer.add_folder("workspace/d", mode=0o755, mtime=1)
        writer.add("workspace/d/file.md", io.BytesIO(b"hello" * 1000))
        writer.add_link("workspace/d/link", "../AGENTS.md", mtime=1)
        writer.add("workspace/not \udcff utf-8 \\ \n", io.BytesIO(b""))
        writer.add("database/meta.copy", io.BytesIO(b"a\t1\n"))
        writer.close(change(manifest_of(writer)))
    return path


def made_up(path: Path, *entries: tarfile.TarInfo, content: bytes = b"", **pax: str) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT, pax_headers=pax) as tar:
        for entry in entries:
            entry.size = len(content) if entry.isreg() else 0
            tar.addfile(entry, io.BytesIO(content))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def refused(path: Path, why: str) -> None:
    with pytest.raises(OwnerMustAct, match=why) as told:
        examine(path)
    assert "\n" not in str(told.value)
    assert str(path) in str(told.value)


def unpacks_to(packed: bytes, plain: bytes) -> bool:
    try:
        return gzip.decompress(packed) == plain
    except (OSError, EOFError, zlib.error):
        return False


def test_a_whole_archive_says_what_is_in_it(tmp_path: Path) -> None:
    manifest = examine(archive(tmp_path / "a.tar.gz"))

    assert (manifest.files, manifest.rows) == (2, 1)
    hello = hashlib.sha256(b"hello" * 1000).hexdigest()
    assert Member(name="workspace/d/file.md", kind="file", size=5000, sha256=hello) in manifest.members


def test_a_file_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a.tar.gz").read_bytes()
    for length in range(0, len(whole), 7):
        cut = tmp_path / "cut.tar.gz"
        cut.write_bytes(whole[:length])
        refused(cut, "is no whole SupaClaw backup")


def test_a_flipped_bit_anywhere_in_what_is_packed_is_refused(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a.tar.gz").read_bytes()
    chance = random.Random(3)
    for place in range(10, len(whole)):  # what comes before is gzip's own date and system
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chance.randrange(8)
        damaged = tmp_path / "damaged.tar.gz"
        damaged.write_bytes(flipped)
        if not unpacks_to(flipped, gzip.decompress(whole)):  # the last byte of a packed stream has bits to spare
            refused(damaged, "is no whole SupaClaw backup")


@pytest.mark.parametrize("content", [b"", b"hello", gzip.compress(b""), gzip.compress(b"hello" * 1000)])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(content)
    refused(tmp_path / "a.tar.gz", "is no whole SupaClaw backup")


def test_what_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none.tar.gz", "cannot be read: No such file")
    refused(tmp_path, "cannot be read: Is a directory")


@pytest.mark.parametrize(
    "bad",
    [
        entry("/etc/cron.d/evil"),
        entry("workspace/../../evil"),
        entry("../evil"),
        entry("evil"),
        entry("keys/postgres.supaclaw"),
        entry("workspace/no/such/folder"),
        entry("workspace/device", tarfile.CHRTYPE),
        entry("workspace/pipe", tarfile.FIFOTYPE),
        entry("workspace/hard", tarfile.LNKTYPE, "/etc/passwd"),
        entry("workspace/out", tarfile.SYMTYPE, "/etc"),
        entry("workspace/out", tarfile.SYMTYPE, "../../etc"),
        entry("workspace/out", tarfile.SYMTYPE, "a/../../.."),
        entry("config.json", tarfile.SYMTYPE, "x"),
    ],
    ids=lambda info: f"{info.name} {info.linkname}",
)
def test_an_entry_that_would_do_harm_is_refused(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    refused(made_up(tmp_path / "a.tar.gz", bad), "it holds")


def test_nothing_is_put_through_a_link(tmp_path: Path) -> None:
    link, through = entry("workspace/l", tarfile.SYMTYPE, "d"), entry("workspace/l/x")
    refused(made_up(tmp_path / "a.tar.gz", entry("workspace/d", tarfile.DIRTYPE), link, through), "workspace/l/x")


def test_a_name_comes_once(tmp_path: Path) -> None:
    refused(made_up(tmp_path / "a.tar.gz", entry("workspace/a"), entry("workspace/a")), "it holds 'workspace/a'")


def test_a_header_that_wants_much_memory_does_not_get_it(tmp_path: Path) -> None:
    bomb = made_up(tmp_path / "a.tar.gz", entry("workspace/a"), comment="x" * 64_000_000)
    tracemalloc.start()
    try:
        refused(bomb, "a header in it is too long")
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()


def test_much_of_nothing_needs_little_memory(tmp_path: Path) -> None:
    bomb = made_up(tmp_path / "a.tar.gz", entry("workspace/a"), content=bytes(64_000_000))
    tracemalloc.start()
    try:
        refused(bomb, "it has no manifest")
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()


def test_a_manifest_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    def without_the_last(manifest: Manifest) -> Manifest:
        return manifest.model_copy(update={"members": manifest.members[:-1]})

    def of_another_size(manifest: Manifest) -> Manifest:
        first, *rest = manifest.members
        return manifest.model_copy(update={"members": (first.model_copy(update={"size": 1}), *rest)})

    def of_other_tables(manifest: Manifest) -> Manifest:
        return manifest.model_copy(update={"tables": ()})

    refused(archive(tmp_path / "1.tar.gz", without_the_last), "missing or were added")
    refused(archive(tmp_path / "2.tar.gz", of_another_size), "workspace/d is not as it was saved")
    refused(archive(tmp_path / "3.tar.gz", of_other_tables), "its tables are not those")
    refused(made_up(tmp_path / "4.tar.gz", entry("manifest.json"), content=b"{}"), "manifest cannot be read")


def test_nothing_may_follow(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz")
    whole = path.read_bytes()
    path.write_bytes(whole + gzip.compress(b"more"))
    refused(path, "something follows its end")
    path.write_bytes(whole + b"more")
    refused(path, "is no whole SupaClaw backup")


@pytest.mark.parametrize("later", [{"format": 2}, {"schema_number": 999}])
def test_an_archive_of_a_later_program_says_to_update(tmp_path: Path, later: dict[str, int]) -> None:
    path = archive(tmp_path / "a.tar.gz", lambda manifest: manifest.model_copy(update=later))
    with pytest.raises(OwnerMustAct, match=r"SupaClaw 0\.1\.0 wrote this backup.*update SupaClaw"):
        examine(path)
