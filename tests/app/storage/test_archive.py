"""Archives that somebody damaged, cut, made up or made to do harm: each is one clear line, and nothing gets out."""

import gzip
import hashlib
import io
import json
import tarfile
import tracemalloc
import zlib
from pathlib import Path

import pytest
from pydantic import JsonValue

from gateway.app.storage.restore import unpack
from gateway.domain.errors import OwnerMustAct
from tests.app.storage.test_manifest import WHOLE

Entry = tuple[tarfile.TarInfo, bytes]


def entry(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = "") -> Entry:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(content)
    return info, content


def told(*entries: Entry, **changes: JsonValue) -> Entry:
    """A manifest that fits these entries, as whoever makes up an archive could write it."""
    members: list[JsonValue] = [
        {
            "name": info.name + "/" * info.isdir(),
            "size": info.size,
            "sha256": hashlib.sha256(content or info.linkname.encode()).hexdigest(),
        }
        for info, content in entries
    ]
    return entry("manifest.json", json.dumps(WHOLE | {"members": members} | changes).encode())


def packed(path: Path, *entries: Entry) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return path


GOOD = (
    entry("workspace/d", kind=tarfile.DIRTYPE),
    entry("workspace/d/file.md", b"hello" * 1000),
    entry("workspace/d/link", kind=tarfile.SYMTYPE, target="../AGENTS.md"),
    entry("database/meta.copy", b"a\t1\n"),
)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """An archive as it should be."""
    return packed(tmp_path / "a.tar.gz", *GOOD, told(*GOOD))


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """Where it is unpacked; a sibling of what must stay empty of anything else."""
    (tmp_path / "room/into").mkdir(parents=True)
    return tmp_path / "room/into"


def refused(path: Path, why: str, into: Path | None = None) -> None:
    with pytest.raises(OwnerMustAct, match=why) as error:
        unpack(path, into)
    assert "\n" not in str(error.value)


def test_a_whole_one_is_unpacked_and_says_what_is_in_it(whole: Path, into: Path) -> None:
    manifest = unpack(whole, into)

    assert manifest == unpack(whole, None)
    assert manifest.members[0].name == "workspace/d/"
    assert (into / "workspace/d/file.md").read_bytes() == b"hello" * 1000
    assert (into / "workspace/d/link").readlink() == Path("../AGENTS.md")


def test_one_that_is_cut_anywhere_is_refused(whole: Path, tmp_path: Path) -> None:
    raw = whole.read_bytes()
    for length in range(0, len(raw), 11):
        (tmp_path / "cut.tar.gz").write_bytes(raw[:length])
        refused(tmp_path / "cut.tar.gz", "is not a complete SupaClaw backup")


def test_a_flipped_bit_is_refused_wherever_it_is(whole: Path, tmp_path: Path) -> None:
    raw = whole.read_bytes()
    for place in range(10, len(raw), 3):  # what comes before is gzip's own date and system
        flipped = bytearray(raw)
        flipped[place] ^= 1 << place % 8
        (tmp_path / "damaged.tar.gz").write_bytes(flipped)
        if not unpacks_to(flipped, gzip.decompress(raw)):  # a packed stream has bits to spare
            refused(tmp_path / "damaged.tar.gz", "is not a complete SupaClaw backup")


def unpacks_to(raw: bytes, plain: bytes) -> bool:
    try:
        return gzip.decompress(raw) == plain
    except (OSError, EOFError, zlib.error):
        return False


@pytest.mark.parametrize(
    "content", [b"", b"hello", gzip.compress(b"", mtime=0), gzip.compress(b"hello" * 1000, mtime=0)]
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(content)
    refused(tmp_path / "a.tar.gz", "is not a complete SupaClaw backup")


def test_what_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none.tar.gz", "none.tar.gz cannot be read")
    refused(tmp_path, "cannot be read or written: Is a directory")


@pytest.mark.parametrize(
    "bad",
    [
        entry("../evil", b"x"),
        entry("workspace/../../evil", b"x"),
        entry("workspace/device", kind=tarfile.CHRTYPE),
        entry("workspace/pipe", kind=tarfile.FIFOTYPE),
        entry("workspace/hard", kind=tarfile.LNKTYPE, target="../evil"),
        entry("workspace/out", kind=tarfile.SYMTYPE, target="/etc"),
        entry("workspace/out", kind=tarfile.SYMTYPE, target="../.."),
        entry("workspace/out", kind=tarfile.SYMTYPE, target="d/../../.."),
    ],
    ids=lambda bad: f"{bad[0].name} {bad[0].linkname}",
)
def test_an_entry_that_would_get_out_is_refused(tmp_path: Path, into: Path, bad: Entry) -> None:
    refused(packed(tmp_path / "a.tar.gz", bad, told(bad)), "not a complete SupaClaw backup", into)
    assert list(into.parent.iterdir()) == [into]


def test_an_absolute_name_becomes_one_below(tmp_path: Path, into: Path) -> None:
    bad = entry(f"{tmp_path}/evil", b"x")
    unpack(packed(tmp_path / "a.tar.gz", bad, told(bad)), into)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE])
def test_nothing_is_put_through_a_link(tmp_path: Path, into: Path, kind: bytes) -> None:
    """Where `d/l` leads up to the workspace, `d/l/x` would climb one folder more than it says."""
    bad = (
        entry("workspace/d", kind=tarfile.DIRTYPE),
        entry("workspace/d/l", kind=tarfile.SYMTYPE, target=".."),
        entry("workspace/d/l/x", kind=kind, target="../.." if kind == tarfile.SYMTYPE else ""),
    )
    refused(packed(tmp_path / "a.tar.gz", *bad, told(*bad)), "cannot be read or written", into)
    assert not (into / "workspace/x").is_symlink()


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (told(*GOOD[:-1]), "'database/meta.copy' has changed since it was saved"),
        (told(*GOOD, entry("workspace/more")), "'workspace/more' has changed since it was saved"),
        (told(*GOOD[1:], entry("workspace/d", b"x")), "'workspace/d' has changed since it was saved"),
        (told(*GOOD, tables=None), "its manifest cannot be read"),
        (entry("other.json"), "it has no manifest"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(tmp_path: Path, manifest: Entry, why: str) -> None:
    refused(packed(tmp_path / "a.tar.gz", *GOOD, manifest), why)


def test_what_follows_is_not_read_and_damage_in_it_is_noticed(whole: Path, into: Path) -> None:
    raw = whole.read_bytes()
    whole.write_bytes(raw + b"more")
    refused(whole, "is not a complete SupaClaw backup")
    packed(whole, *GOOD, told(*GOOD), entry("workspace/late", b"x"))
    unpack(whole, into)
    assert not (into / "workspace/late").exists()


def test_much_of_something_needs_little_memory(tmp_path: Path, into: Path) -> None:
    much = entry("workspace/zeros", bytes(64_000_000))
    path = packed(tmp_path / "a.tar.gz", much, told(much))
    tracemalloc.start()
    try:
        unpack(path, into)
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()
