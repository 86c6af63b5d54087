import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.workspace.locks import MAX_LOCKED_BYTES, NOTE_SECONDS, REPLACED_MARK, LockKeeper, OwnerEdits

LOCKED = b"<!-- CORE:LOCK -->\nrules\n<!-- /CORE:LOCK -->\n<!-- AI:OPEN -->\n<!-- /AI:OPEN -->\n"
WHEN = 1_700_000_000_123_456_789


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "notes/deep").mkdir(parents=True)
    for path in ("AGENTS.md", "notes/deep/house.md"):
        (root / path).write_bytes(LOCKED)
        (root / path).chmod(0o640)
        os.utime(root / path, ns=(WHEN, WHEN))
    (root / "notes/free.md").write_text("nothing is locked here")
    return root


@pytest.fixture
def keeper(root: Path, tmp_path: Path) -> LockKeeper:
    keeper = LockKeeper(root, tmp_path / "aside", OwnerEdits(tmp_path))
    keeper.find()
    keeper.renew()
    return keeper


def outside(root: Path) -> Path:
    (root.parent / "outside").mkdir(exist_ok=True)
    return root.parent / "outside"


def linked_write(root: Path) -> None:
    os.link(root / "AGENTS.md", root / "twin")
    with (root / "twin").open("r+b") as file:
        file.write(b"mine")


def mapped_write(root: Path) -> None:
    import mmap

    with (root / "AGENTS.md").open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[20:25] = b"mine!"
    os.utime(root / "AGENTS.md", ns=(WHEN, WHEN))


def as_link(root: Path) -> None:
    (root / "AGENTS.md").unlink()
    (outside(root) / "target").write_text("outside")
    (root / "AGENTS.md").symlink_to(outside(root) / "target")


def as_folder(root: Path) -> None:
    (root / "AGENTS.md").unlink()
    (root / "AGENTS.md/full").mkdir(parents=True)


def as_pipe(root: Path) -> None:
    (root / "AGENTS.md").unlink()
    os.mkfifo(root / "AGENTS.md")


def as_socket(root: Path) -> None:
    (root / "AGENTS.md").unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(root / "AGENTS.md"))


def parent_as_link(root: Path) -> None:
    (root / "notes/deep").rename(outside(root) / "deep")
    (root / "notes/deep").symlink_to(outside(root) / "deep")
    (outside(root) / "deep/house.md").write_text("mine")


def parent_as_file(root: Path) -> None:
    (root / "notes/deep/house.md").unlink()
    (root / "notes/deep").rmdir()
    (root / "notes/deep").write_text("a file")


def parent_closed(root: Path) -> None:
    (root / "notes/deep/house.md").write_text("mine")
    (root / "notes/deep").chmod(0)
    (root / "notes").chmod(0)


def parents_gone(root: Path) -> None:
    (root / "notes/deep/house.md").unlink()
    (root / "notes/deep").rmdir()


ATTACKS: list[tuple[str, Callable[[Path], object]]] = [
    ("AGENTS.md", lambda root: (root / "AGENTS.md").write_bytes(LOCKED.replace(b"rules", b"mine!"))),
    ("AGENTS.md", lambda root: (root / "AGENTS.md").write_bytes(b"")),
    ("AGENTS.md", lambda root: (root / "AGENTS.md").write_bytes(LOCKED + b" " * MAX_LOCKED_BYTES)),
    ("AGENTS.md", lambda root: (root / "AGENTS.md").write_bytes(LOCKED.replace(b"\n", b"\r\n"))),
    ("AGENTS.md", lambda root: (root / "AGENTS.md").write_bytes(b"\xef\xbb\xbf" + LOCKED)),
    ("AGENTS.md", lambda root: (root / "AGENTS.md").unlink()),
    ("AGENTS.md", lambda root: (root / "AGENTS.md").rename(root / "notes/AGENTS.md")),
    ("AGENTS.md", lambda root: (root / "notes/free.md").replace(root / "AGENTS.md")),
    ("AGENTS.md", lambda root: (root / "AGENTS.md").chmod(0o000)),
    ("AGENTS.md", lambda root: (root / "AGENTS.md").chmod(0o777)),
    ("AGENTS.md", linked_write),
    ("AGENTS.md", mapped_write),
    ("AGENTS.md", as_link),
    ("AGENTS.md", as_folder),
    ("AGENTS.md", as_pipe),
    ("AGENTS.md", as_socket),
    ("notes/deep/house.md", parent_as_link),
    ("notes/deep/house.md", parent_as_file),
    ("notes/deep/house.md", parent_closed),
    ("notes/deep/house.md", parents_gone),
]


@pytest.mark.parametrize(("path", "attack"), ATTACKS)
def test_what_was_changed_comes_back_byte_for_byte(
    keeper: LockKeeper, root: Path, path: str, attack: Callable[[Path], object]
) -> None:
    attack(root)
    assert keeper.check() == [path]
    status = (root / path).lstat()
    assert (root / path).read_bytes() == LOCKED
    assert stat.S_ISREG(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o640
    assert status.st_mtime_ns == WHEN
    assert status.st_nlink == 1
    assert keeper.check() == []
    for each in outside(root).rglob("*.md"):
        assert each.read_text() == "mine"


def test_what_stood_there_is_kept_aside(keeper: LockKeeper, root: Path, tmp_path: Path) -> None:
    (root / "notes/deep/house.md").write_text("what the owner was just typing")
    keeper.check()
    assert (tmp_path / "aside/notes__deep__house.md").read_text() == "what the owner was just typing"


def test_open_text_may_change_and_comes_back_with_the_rest(keeper: LockKeeper, root: Path) -> None:
    learned = LOCKED.replace(b"<!-- AI:OPEN -->\n", b"<!-- AI:OPEN -->\nlearned\n")
    (root / "AGENTS.md").write_bytes(learned)
    assert keeper.check() == []
    (root / "AGENTS.md").write_bytes(b"mine")
    assert keeper.check() == ["AGENTS.md"]
    assert (root / "AGENTS.md").read_bytes() == learned


def test_a_touched_file_gets_its_time_back(keeper: LockKeeper, root: Path) -> None:
    (root / "AGENTS.md").touch()
    assert keeper.check() == []
    assert (root / "AGENTS.md").stat().st_mtime_ns == WHEN


def test_the_owner_edits_and_deletes_freely_between_runs(keeper: LockKeeper, root: Path) -> None:
    (root / "AGENTS.md").write_bytes(LOCKED.replace(b"rules", b"other rules"))
    (root / "notes/deep/house.md").unlink()
    keeper.renew()
    assert keeper.paths == ("AGENTS.md",)
    (root / "AGENTS.md").write_bytes(LOCKED)
    assert keeper.check() == ["AGENTS.md"]
    assert b"other rules" in (root / "AGENTS.md").read_bytes()


def test_a_persona_file_that_gets_markers_needs_no_search(keeper: LockKeeper, root: Path) -> None:
    (root / "USER.md").write_bytes(LOCKED)
    (root / "elsewhere.md").write_bytes(LOCKED)
    keeper.renew()
    assert keeper.paths == ("AGENTS.md", "USER.md", "notes/deep/house.md")
    keeper.find()
    assert "elsewhere.md" in keeper.paths


def test_folders_of_others_are_not_searched(keeper: LockKeeper, root: Path) -> None:
    for folder in ("uploads", "Sessions", "memory", "tool-results", "a/.git", "a/node_modules", ".agents/skills/x"):
        (root / folder).mkdir(parents=True)
        (root / folder / "a.md").write_bytes(LOCKED)
    (root / "link").symlink_to(root / "notes")
    keeper.find()
    assert keeper.paths == ("AGENTS.md", "notes/deep/house.md")


def test_an_edit_that_the_owner_noted_counts_once(keeper: LockKeeper, root: Path, tmp_path: Path) -> None:
    edited = LOCKED.replace(b"rules", b"new rules")
    OwnerEdits(tmp_path).note(edited)
    (root / "AGENTS.md").write_bytes(edited)
    assert keeper.check() == []
    OwnerEdits(tmp_path).note(LOCKED)
    (root / "AGENTS.md").write_bytes(LOCKED)
    keeper.renew()  # which uses the note up
    (root / "AGENTS.md").write_bytes(edited)
    assert keeper.check() == ["AGENTS.md"]
    assert (root / "AGENTS.md").read_bytes() == LOCKED


def test_old_notes_go(tmp_path: Path) -> None:
    edits = OwnerEdits(tmp_path)
    edits.note(b"one")
    [note] = (tmp_path / "owner-edits").iterdir()
    os.utime(note, (note.stat().st_mtime - NOTE_SECONDS - 1,) * 2)
    edits.note(b"two")
    assert not edits.take(b"one")
    assert edits.take(b"two")


def test_what_cannot_be_put_back_is_logged_and_tried_again(
    keeper: LockKeeper, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "AGENTS.md").write_bytes(b"mine")
    with monkeypatch.context() as full:
        full.setattr(os, "rename", _full)
        assert keeper.check() == ["AGENTS.md"]
    assert keeper.check() == ["AGENTS.md"]
    assert (root / "AGENTS.md").read_bytes() == LOCKED


def _full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_time_that_cannot_be_put_back_is_no_error(
    keeper: LockKeeper, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "AGENTS.md").touch()
    monkeypatch.setattr(os, "rename", _full)
    assert keeper.check() == []


def test_where_the_jail_cannot_keep_them_all_of_the_instructions_come_back(root: Path, tmp_path: Path) -> None:
    plain, inner = root / "SOUL.md", root / ".agents/USER.md"
    inner.parent.mkdir()
    for path in (plain, inner):
        path.write_text("as the owner wrote it")
    keeper = LockKeeper(root, tmp_path / "aside", OwnerEdits(tmp_path), whole=True)
    keeper.find()
    keeper.renew()

    plain.write_text("evil")
    inner.unlink()
    (root / "notes/free.md").write_text("work")
    assert set(keeper.check()) == {"SOUL.md", ".agents/USER.md"}
    assert plain.read_text() == inner.read_text() == "as the owner wrote it"
    assert (root / "notes/free.md").read_text() == "work"

    plain.write_text("a tool's own write")
    keeper.accept("SOUL.md")
    assert keeper.check() == []
    assert plain.read_text() == "a tool's own write"


# --- instructions that a command makes ---

PLANTED: list[Callable[[Path], object]] = [
    lambda root: (root / "TOOLS.md").write_text("evil"),
    lambda root: (root / "heartbeat.MD").write_text("evil"),
    lambda root: (root / "SO\u200cUL.md").write_text("evil"),
    lambda root: (root / "USER.md").symlink_to("notes/free.md"),
    lambda root: os.link(root / "notes/free.md", root / "USER.md"),
    lambda root: (root / "notes/free.md").rename(root / "TOOLS.md"),
    lambda root: os.mkfifo(root / "TOOLS.md"),
    lambda root: (root / ".agents/workflows/ci.md").write_text("evil"),
    lambda root: (root / ".agents/TOOLS.md").write_text("evil"),
    lambda root: (root / ".agents/agents/helper.md").write_text("evil"),
    lambda root: shutil.copytree(root / ".agents/skills/mine", root / ".agents/skills/theirs"),
    lambda root: (root / ".agents/tools").rmdir() or (root / ".agents/tools").symlink_to("../notes"),
    lambda root: (
        (root / ".agents/agents/mine.md").unlink()
        or (root / ".agents/agents/mine.md").symlink_to("../../notes/free.md")
    ),
    lambda root: shutil.copytree(root / ".agents", root / ".Agents"),
]


@pytest.fixture
def instructed(root: Path) -> Path:
    for name in ("agents", "skills/mine", "tools", "workflows"):
        (root / ".agents" / name).mkdir(parents=True)
    (root / ".agents/agents/mine.md").write_text("my agent")
    (root / ".agents/skills/mine/SKILL.md").write_text("my skill")
    return root


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("plant", PLANTED)
def test_instructions_that_a_command_makes_are_put_aside(
    instructed: Path, tmp_path: Path, plant: Callable[[Path], object], whole: bool
) -> None:
    keeper = LockKeeper(instructed, tmp_path / "aside", OwnerEdits(tmp_path), whole=whole)
    keeper.renew()
    keeper.begin_command()
    assert keeper.check() == []
    plant(instructed)
    moved = keeper.check()
    assert any(REPLACED_MARK in each and os.path.lexists(instructed / each) for each in moved)
    assert keeper.check() == []
    read = [instructed / "TOOLS.md", instructed / "USER.md", *(instructed / ".agents").rglob("*")]
    assert {each.read_text() for each in read if each.is_file()} <= {"my agent", "my skill"}
    assert not any(each.is_symlink() for each in read)


def test_all_that_a_command_does_to_instructions_is_undone_where_the_jail_cannot_keep_them(
    instructed: Path, tmp_path: Path
) -> None:
    keeper = LockKeeper(instructed, tmp_path / "aside", OwnerEdits(tmp_path), whole=True)
    keeper.renew()
    keeper.begin_command()
    (instructed / ".agents").rename(instructed / "elsewhere")
    (instructed / "evil/agents").mkdir(parents=True)
    (instructed / "evil/agents/mine.md").write_text("evil")
    (instructed / ".agents").symlink_to("evil")
    keeper.check()
    assert not (instructed / ".agents").is_symlink()
    assert (instructed / ".agents/agents/mine.md").read_text() == "my agent"


def test_what_the_gateway_or_its_owner_writes_there_stays(instructed: Path, tmp_path: Path) -> None:
    edits = OwnerEdits(tmp_path)
    keeper = LockKeeper(instructed, tmp_path / "aside", edits, whole=True)
    (instructed / "HEARTBEAT.md").symlink_to("notes/free.md")
    keeper.renew()
    (instructed / ".agents/agents/between.md").write_text("between runs")
    keeper.begin_command()
    (instructed / ".agents/agents/new.md").write_text("through the gateway")
    keeper.accept(".agents/agents/new.md")
    edits.note(b"by the command line")
    (instructed / "TOOLS.md").write_text("by the command line")
    assert keeper.check() == []
    keeper.renew()
    (instructed / "USER.md").write_text("no command runs")
    assert keeper.check() == []
