import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.workspace.files import disk
from gateway.workspace.files import index as module
from gateway.workspace.files.disk import Skipped, Written, measure, walk
from gateway.workspace.files.index import FileIndex, Stopped, load_records, notes_mappings
from gateway.workspace.files.paths import WorkspaceError


def refusal(root: Path, path: str, most: int = 10_000_000) -> str:
    with pytest.raises(WorkspaceError) as refused:
        measure(root, path, most)
    return refused.value.code


def test_a_file_is_measured_whole(tmp_path: Path) -> None:
    data = b"0123456789" * 250_000
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/big.bin").write_bytes(data)
    measured = measure(tmp_path, "./notes/big.bin", len(data))
    assert measured == Written("notes/big.bin", len(data), hashlib.sha256(data).hexdigest())


def test_one_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(WorkspaceError, match=r"^huge has 1000000\.0 MB; the limit is 50 MB") as refused:
        measure(tmp_path, "huge", 50_000_000)
    assert refused.value.code == "too_large"


def test_nothing_outside_and_nothing_but_files(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("no")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder").mkdir()
    assert refusal(root, "../secret") == "bad_path"
    assert refusal(root, str(tmp_path / "secret")) == "bad_path"
    assert refusal(root, "link") == "not_a_file"
    assert refusal(root, "folder") == "not_a_file"
    assert refusal(root, "missing") == "not_found"


NOTHING: Skipped = lambda parts: False  # noqa: E731


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def index(root: Path, tmp_path: Path) -> FileIndex:
    return FileIndex(root, tmp_path / "data" / "index")


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all files were old when they are read."""
    monkeypatch.setattr(disk, "UNSETTLED_NS", -(10**12))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the files that are read."""
    sizes, digest = list[int](), module.read_digest

    def counted(file: int, status: os.stat_result) -> tuple[int, bytes]:
        sizes.append(status.st_size)
        return digest(file, status)

    monkeypatch.setattr(module, "read_digest", counted)
    return sizes


def hashes(index: FileIndex) -> dict[str, str]:
    return index.hashes(index.snapshot(NOTHING).files)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def holes(path: Path, data: bytes, size: int = 2**31) -> None:
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size // 2)
        file.write(data)


class TestWalk:
    def found(self, root: Path, levels: int = 600) -> tuple[list[str], list[tuple[str, str]]]:
        failures = list[tuple[str, str]]()
        skipped = lambda parts: parts[-1] == "no"  # noqa: E731
        return [each.path for each in walk(root, skipped, lambda *why: failures.append(why), levels)], failures

    def test_own_files_come_before_those_of_folders_and_links_are_not_followed(self, root: Path) -> None:
        for path in ("b/z", "b/a/x", "a/y", "c", "no/q"):
            write(root, path, path)
        (root / "link").symlink_to(root / "b")
        found, failures = self.found(root)
        assert sorted(found[:2]) == ["c", "link"]
        assert found[2:] == ["a/y", "b/z", "b/a/x"]
        assert failures == []

    def test_what_lies_too_deep_is_told(self, root: Path) -> None:
        write(root, "1/2/3/x", "")
        write(root, "1/y", "")
        assert self.found(root, levels=2) == (["1/y"], [("1/2/3", "too deep")])

    def test_no_descriptor_is_left_open(self, root: Path) -> None:
        write(root, "1/2/3/x", "")
        before = os.listdir("/proc/self/fd")
        next(walk(root, NOTHING, lambda *_: None))
        self.found(root)
        assert len(os.listdir("/proc/self/fd")) == len(before)


class TestIndex:
    def test_more_than_fifty_thousand_files_and_a_gigabyte_are_no_limit(self, index: FileIndex) -> None:
        write(index.root, "0", "x")
        for number in range(1, 50_002):
            os.link(index.root / "0", index.root / f"{number}")
        holes(index.root / "large", b"data")
        found = index.snapshot(NOTHING).files
        assert len(found) == 50_003
        assert index.hashes({path: found[path] for path in ("0", "large")}).keys() == {"0", "large"}

    def test_a_file_is_read_again_when_its_state_changes(
        self, index: FileIndex, read: list[int], settled: None
    ) -> None:
        write(index.root, "a", "one")
        write(index.root, "b/c", "three")
        assert hashes(index) == {"a": sha256("one"), "b/c": sha256("three")}
        write(index.root, "a", "four")
        os.utime(index.root / "a", ns=(1, 1))
        assert hashes(index) == {"a": sha256("four"), "b/c": sha256("three")}
        assert sorted(read) == [3, 4, 5]

    def test_one_that_has_just_been_written_is_read_again(self, index: FileIndex, read: list[int]) -> None:
        write(index.root, "a", "one")
        assert hashes(index) == hashes(index)
        assert read == [3, 3]

    def test_hashes_survive_a_restart(self, index: FileIndex, read: list[int], settled: None) -> None:
        for path in ("a", "b/c", os.fsdecode(b"\xff")):
            write(index.root, path, "text")
        before = hashes(index)
        index.save()
        read.clear()
        assert hashes(FileIndex(index.root, index.file)) == before
        assert read == []

    @pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: data[:-40] + bytes(40)])
    def test_a_damaged_file_costs_time_alone(
        self, index: FileIndex, read: list[int], settled: None, damage: Callable[[bytes], bytes]
    ) -> None:
        write(index.root, "a", "one")
        before = hashes(index)
        index.save()
        assert index.file is not None
        index.file.write_bytes(damage(index.file.read_bytes()))
        assert hashes(FileIndex(index.root, index.file)) == before
        assert read == [3, 3]

    def test_that_of_another_folder_does_not_count(self, index: FileIndex, tmp_path: Path, settled: None) -> None:
        write(index.root, "a", "one")
        hashes(index)
        index.save()
        moved = index.root.rename(tmp_path / "moved")
        other = FileIndex(moved, index.file)
        hashes(other)
        assert load_records(tmp_path / "data" / "index", str(moved)) == {}

    def test_nothing_is_saved_while_a_program_runs(self, index: FileIndex, settled: None) -> None:
        write(index.root, "a", "one")
        index.programs = 1
        hashes(index)
        index.save()
        assert index.file is not None
        assert not index.file.exists()

    def test_what_is_read_while_a_program_ends_is_not_remembered(
        self, index: FileIndex, monkeypatch: pytest.MonkeyPatch, settled: None
    ) -> None:
        write(index.root, "a", "one")
        digest = module.read_digest

        def interrupted(file: int, status: os.stat_result) -> tuple[int, bytes]:
            index.forget(["a"])
            return digest(file, status)

        monkeypatch.setattr(module, "read_digest", interrupted)
        hashes(index)
        assert index._known == {}

    def test_a_file_system_that_hides_writes_is_not_trusted_over_a_restart(
        self, index: FileIndex, read: list[int], settled: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "notes_mappings", lambda _: False)
        write(index.root, "a", "one")
        hashes(index)
        index.save()
        hashes(FileIndex(index.root, index.file))
        assert read == [3, 3]

    def test_a_look_that_nobody_waits_for_ends_and_what_it_read_stays(
        self, index: FileIndex, read: list[int], settled: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in "abc":
            write(index.root, name, name)
        stop, digest = threading.Event(), module.read_digest

        def last(file: int, status: os.stat_result) -> tuple[int, bytes]:
            stop.set()
            return digest(file, status)

        monkeypatch.setattr(module, "read_digest", last)
        with pytest.raises(Stopped):
            index.hashes(index.snapshot(NOTHING).files, stop)
        assert len(read) == len(index._known) == 1
        assert index.progress == ""

    def test_a_long_look_tells_how_far_it_is(self, index: FileIndex, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "LONG_LOOK_FILES", 1)
        told, digest = list[str](), module.read_digest

        def watched(file: int, status: os.stat_result) -> tuple[int, bytes]:
            told.append(index.progress)
            return digest(file, status)

        monkeypatch.setattr(module, "read_digest", watched)
        for name in "ab":
            write(index.root, name, name)
        hashes(index)
        assert told[0].startswith("reading 2 new files, 0 %")

    def test_what_is_gone_is_forgotten(self, index: FileIndex, settled: None) -> None:
        write(index.root, "a", "one")
        write(index.root, "b/c", "three")
        hashes(index)
        (index.root / "a").unlink()
        index.snapshot(lambda parts: parts[0] == "b")
        assert index._known.keys() == {"b/c"}

    def test_holes_are_not_read_and_what_lies_between_them_counts(self, index: FileIndex) -> None:
        holes(index.root / "a", b"one")
        holes(index.root / "b", b"one")
        holes(index.root / "c", b"two")
        holes(index.root / "d", b"one", 2**32)
        found = hashes(index)
        assert found["a"] == found["b"]
        assert len({*found.values()}) == 3

    @pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
    def test_a_folder_that_a_program_could_open_makes_it_incomplete(self, index: FileIndex) -> None:
        write(index.root, "closed/a", "one")
        assert index.snapshot(NOTHING).whole
        (index.root / "closed").chmod(0)
        assert not index.snapshot(NOTHING).whole
        (index.root / "closed").chmod(0o700)

    def test_so_does_one_that_is_too_deep(self, index: FileIndex) -> None:
        write(index.root, "/".join("1" * 610), "")
        assert not index.snapshot(NOTHING).whole


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no tmpfs")
def test_a_file_system_that_notes_no_write_to_a_page_that_was_read_is_not_trusted() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        assert not notes_mappings(Path(folder))
    assert not notes_mappings(Path("/no/such/folder"))
