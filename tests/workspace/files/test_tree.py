import asyncio
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.domain.principals import Label
from gateway.workspace.files.access import explained_errors
from gateway.workspace.files.pages import Piece
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath
from gateway.workspace.files.tree import MAX_LISTED, MAX_WRITE_BYTES, Listed, Workspace

OWN = Label.OWNER


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    return root


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root)


async def code_of(work: object) -> str:
    assert asyncio.iscoroutine(work)
    with pytest.raises(WorkspaceError) as caught:
        await work
    return caught.value.code


async def whole(workspace: Workspace, path: str, limit: int) -> Iterator[str]:
    parts: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await workspace.page(path, offset, limit)
        assert page is not None
        parts.append(page.text)
        offset = page.next_offset
    return iter(parts)


class TestReading:
    async def test_a_missing_file_is_none(self, workspace: Workspace) -> None:
        assert await workspace.page("nothing.md") is None
        assert await workspace.page("no/such/folder.md") is None
        assert workspace.head("nothing.md", 100) is None

    async def test_a_short_file_comes_whole(self, workspace: Workspace, root: Path) -> None:
        (root / "a.md").write_bytes("grüße\r\n".encode())
        page = await workspace.page("a.md")
        assert page is not None
        assert (page.text, page.size, page.next_offset) == ("grüße\r\n", 9, None)

    @pytest.mark.parametrize("limit", [8, 9, 10, 11])
    async def test_pages_joined_are_the_file_whatever_characters_they_cut(
        self, workspace: Workspace, root: Path, limit: int
    ) -> None:
        text = "aé€😀" * 50
        (root / "a.md").write_text(text)
        assert "".join(await whole(workspace, "a.md", limit)) == text

    async def test_an_offset_inside_a_character_starts_at_the_next_one(self, workspace: Workspace, root: Path) -> None:
        (root / "a.md").write_text("😀b")
        page = await workspace.page("a.md", 2)
        assert page is not None
        assert page.text == "b"

    async def test_an_offset_beyond_the_end_is_an_empty_page(self, workspace: Workspace, root: Path) -> None:
        (root / "a.md").write_text("short")
        page = await workspace.page("a.md", 100)
        assert page is not None
        assert (page.text, page.next_offset) == ("", None)

    @pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n", b"a\0b", "é".encode()[:1]])
    async def test_binary_content_is_refused(self, workspace: Workspace, root: Path, content: bytes) -> None:
        (root / "a.bin").write_bytes(content)
        assert await code_of(workspace.page("a.bin")) == "binary"

    async def test_the_head_comes_with_the_hash_of_the_whole(self, workspace: Workspace, root: Path) -> None:
        (root / "a.md").write_bytes(b"ab\xffcd")
        assert workspace.head("a.md", 4) == Piece(b"ab\xffc", 5, hashlib.sha256(b"ab\xffcd").hexdigest())

    async def test_a_folder_is_not_read(self, workspace: Workspace, root: Path) -> None:
        (root / "notes").mkdir()
        assert await code_of(workspace.page("notes")) == "not_a_file"
        assert await code_of(workspace.page("")) == "not_a_file"


class TestEscape:
    async def test_a_linked_file_is_refused(self, workspace: Workspace, root: Path) -> None:
        (root / "link").symlink_to(root.parent / "secret.txt")
        assert await code_of(workspace.page("link")) == "not_a_file"
        assert await code_of(workspace.write("link", "x", OWN)) == "not_a_file"
        assert await code_of(workspace.update("link", str.upper, OWN)) == "not_a_file"
        assert (root.parent / "secret.txt").read_text() == "outside"

    async def test_a_linked_folder_is_refused(self, workspace: Workspace, root: Path) -> None:
        (root / "out").symlink_to(root.parent)
        assert await code_of(workspace.page("out/secret.txt")) == "not_a_folder"
        assert await code_of(workspace.write("out/new.txt", "x", OWN)) == "not_a_folder"
        assert await code_of(workspace.listing("out")) == "not_a_folder"
        assert not (root.parent / "new.txt").exists()

    async def test_a_pipe_is_refused_without_waiting_for_it(self, workspace: Workspace, root: Path) -> None:
        os.mkfifo(root / "pipe")
        assert await code_of(workspace.page("pipe")) == "not_a_file"
        assert await code_of(workspace.write("pipe", "x", OWN)) == "not_a_file"

    async def test_the_root_itself_may_be_a_link(self, root: Path) -> None:
        (root / "a.md").write_text("a")
        (root.parent / "alias").symlink_to(root)
        page = await Workspace(root.parent / "alias").page("a.md")
        assert page is not None
        assert page.text == "a"


class TestWriting:
    async def test_write_makes_folders_and_tells_what_is_on_disk(self, workspace: Workspace, root: Path) -> None:
        written = await workspace.write("./a/b/c.md", "grüße", OWN)
        data = "grüße".encode()
        assert (root / "a/b/c.md").read_bytes() == data
        assert (written.path, written.size) == ("a/b/c.md", len(data))
        assert written.sha256 == hashlib.sha256(data).hexdigest()

    async def test_bytes_are_written_as_they_are(self, workspace: Workspace, root: Path) -> None:
        await workspace.write("a.bin", b"\0\xff", OWN)
        assert (root / "a.bin").read_bytes() == b"\0\xff"

    async def test_replacing_keeps_the_mode(self, workspace: Workspace, root: Path) -> None:
        (root / "run.sh").write_text("old")
        (root / "run.sh").chmod(0o750)
        await workspace.write("run.sh", "new", OWN)
        assert (root / "run.sh").read_text() == "new"
        assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o750

    @pytest.mark.parametrize("path", ["sessions/a.md", "memory/a.md", "memory"])
    async def test_the_gateways_folders_cannot_be_written(self, workspace: Workspace, root: Path, path: str) -> None:
        assert await code_of(workspace.write(path, "x", OWN)) == "read_only"
        assert await code_of(workspace.update(path, str.upper, OWN)) == "read_only"
        assert os.listdir(root) == []

    async def test_the_root_and_folders_are_no_files_to_write(self, workspace: Workspace, root: Path) -> None:
        (root / "notes").mkdir()
        assert await code_of(workspace.write(".", "x", OWN)) == "bad_path"
        assert await code_of(workspace.write("notes", "x", OWN)) == "not_a_file"

    async def test_a_file_cannot_serve_as_a_folder(self, workspace: Workspace, root: Path) -> None:
        (root / "a").write_text("x")
        assert await code_of(workspace.write("a/b", "x", OWN)) == "not_a_folder"

    async def test_five_megabytes_are_the_most(self, workspace: Workspace, root: Path) -> None:
        assert (await workspace.write("a", b"x" * MAX_WRITE_BYTES, OWN)).size == MAX_WRITE_BYTES
        assert await code_of(workspace.write("b", b"x" * (MAX_WRITE_BYTES + 1), OWN)) == "too_large"
        (root / "c").write_bytes(b"x" * (MAX_WRITE_BYTES + 1))
        assert await code_of(workspace.update("c", str.upper, OWN)) == "too_large"

    async def test_a_lone_surrogate_is_refused(self, workspace: Workspace) -> None:
        assert await code_of(workspace.write("a.md", "\ud800", OWN)) == "binary"

    async def test_a_full_disk_changes_nothing_and_says_so(
        self, workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "a.md").write_text("old")

        def full(_file: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("gateway.workspace.files.access.os.fsync", full)
        with pytest.raises(WorkspaceError, match="disk is full") as caught:
            await workspace.write("a.md", "new", OWN)
        assert caught.value.code == "disk_full"
        assert os.listdir(root) == ["a.md"]
        assert (root / "a.md").read_text() == "old"


class TestUpdating:
    async def test_update_replaces_by_the_changed_text(self, workspace: Workspace, root: Path) -> None:
        (root / "a.md").write_text("abc")
        assert (await workspace.update("a.md", str.upper, OWN)).size == 3
        assert (root / "a.md").read_text() == "ABC"

    async def test_updates_at_once_lose_nothing_and_keep_their_order(self, workspace: Workspace, root: Path) -> None:
        (root / "a.md").write_text("")

        def appending(number: int) -> asyncio.Task[object]:
            return asyncio.create_task(workspace.update("a.md", lambda text: f"{text}{number},", OWN))

        await asyncio.gather(*map(appending, range(20)))
        assert (root / "a.md").read_text() == "".join(f"{number}," for number in range(20))

    async def test_an_error_in_the_change_passes_and_nothing_is_written(self, workspace: Workspace, root: Path) -> None:
        (root / "a.md").write_text("abc")

        def refuse(text: str) -> str:
            raise KeyError(text)

        with pytest.raises(KeyError, match="abc"):
            await workspace.update("a.md", refuse, OWN)
        assert (root / "a.md").read_text() == "abc"

    async def test_only_existing_text_can_be_updated(self, workspace: Workspace, root: Path) -> None:
        (root / "a.bin").write_bytes(b"\xff")
        assert await code_of(workspace.update("nothing.md", str.upper, OWN)) == "not_found"
        assert await code_of(workspace.update("a.bin", str.upper, OWN)) == "binary"


class TestListing:
    async def test_names_come_sorted_with_kind_and_size(self, workspace: Workspace, root: Path) -> None:
        (root / "b.md").write_text("four")
        (root / "a").mkdir()
        (root / "a" / "hidden from the root.md").touch()
        (root / "c").symlink_to("b.md")
        (root / ".writing-0011").touch()
        listing = await workspace.listing("")
        assert [(entry.name, entry.kind) for entry in listing.entries] == [
            ("a", "folder"),
            ("b.md", "file"),
            ("c", "other"),
        ]
        assert listing.entries[1] == Listed("b.md", "file", 4)
        assert listing.left_out == 0

    async def test_a_name_no_tool_can_open_is_shown_as_other(self, workspace: Workspace, root: Path) -> None:
        (root / "back\\slash").touch()
        (root / os.fsdecode(b"\xff")).touch()
        assert {entry.kind for entry in (await workspace.listing()).entries} == {"other"}

    async def test_a_huge_folder_is_cut_and_counted(self, workspace: Workspace, root: Path) -> None:
        for number in range(MAX_LISTED + 2):
            (root / f"{number:04}").touch()
        listing = await workspace.listing(".")
        assert (len(listing.entries), listing.left_out) == (MAX_LISTED, 2)

    async def test_only_folders_are_listed(self, workspace: Workspace, root: Path) -> None:
        (root / "a.md").touch()
        assert await code_of(workspace.listing("a.md")) == "not_a_folder"
        assert await code_of(workspace.listing("nothing")) == "not_found"


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EACCES, "denied"), (errno.EDQUOT, "disk_full"), (errno.EIO, "io_error")]
)
def test_system_errors_are_told_in_words(number: int, code: str) -> None:
    with pytest.raises(WorkspaceError, match=r"\.$") as caught, explained_errors(WorkspacePath.parse("a.md")):
        raise OSError(number, os.strerror(number))
    assert caught.value.code == code


class TestLabels:
    async def test_a_page_has_the_hash_of_the_bytes_it_is_a_part_of(
        self, workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The file changes while it is read: hash and page still belong together."""
        (root / "a.md").write_bytes(b"a" * 3_000_000)
        read, seen = os.pread, []

        def changing(file: int, length: int, offset: int) -> bytes:
            chunk = read(file, length, offset)
            seen.append(chunk)
            with open(root / "a.md", "r+b") as whole:
                whole.write(b"b" * 3_000_000)
            return chunk

        monkeypatch.setattr(os, "pread", changing)
        found = workspace.head("a.md", 2_000_000)
        assert found is not None
        assert found.sha256 == hashlib.sha256(b"".join(seen)).hexdigest()
        assert found.data == b"".join(seen)[:2_000_000]
        assert {found.data[:1], found.data[-1:]} == {b"a", b"b"}
