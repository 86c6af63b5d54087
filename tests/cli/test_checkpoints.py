"""`supaclaw checkpoints`, as the shell would call it."""

import asyncio
import fcntl
import os
import threading
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.cli.storage import workspace as command
from gateway.cli.terminal import output
from gateway.domain.principals import Label, Role
from gateway.store.connection.pool import Database
from gateway.store.files import contents
from gateway.store.people import principals
from tests.cli.conftest import Supaclaw


@pytest.fixture
def workspace(place: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    workspace = place / "data" / "workspace"
    (workspace / "notes").mkdir(parents=True)
    (workspace / "notes" / "a.md").write_text("one")
    return workspace


@pytest.fixture
def store(workspace: Path) -> Path:
    return workspace.parent / "checkpoints"


def newest(supaclaw: Supaclaw) -> str:
    rows = supaclaw("checkpoints", "list", "--json").json
    assert isinstance(rows, list)
    return str(rows[0]["id"])


def test_before_the_first_checkpoint_the_list_is_empty(supaclaw: Supaclaw, workspace: Path) -> None:
    assert supaclaw("checkpoints", "list", "--json").json == []
    assert supaclaw("checkpoints", "list").out == "Nothing here yet.\n"


def test_one_is_made_when_something_has_changed(supaclaw: Supaclaw, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")

    first = supaclaw("checkpoints", "create")
    second = supaclaw("checkpoints", "create")

    assert first.out == f"made {newest(supaclaw)}: 1 added (left out: 1 not a file)\n"
    assert second.out == "nothing has changed since the last checkpoint (left out: 1 not a file)\n"
    assert supaclaw("checkpoints", "create", "--json").json == {
        "id": None,
        "changes": "",
        "left_out": "1 not a file",
    }


def test_the_list_says_when_and_why(supaclaw: Supaclaw, workspace: Path) -> None:
    supaclaw("checkpoints", "create")
    (workspace / "b.md").write_text("two")
    supaclaw("checkpoints", "create")

    rows = supaclaw("checkpoints", "list", "--json").json
    assert isinstance(rows, list)
    assert [row["reason"] for row in rows] == ["asked", "asked"]
    assert rows[0]["made_at"]
    assert supaclaw("checkpoints", "list", "--limit", "1", "--json").json == rows[:1]
    assert rows[0]["id"] in supaclaw("checkpoints", "list").out


def test_differences_are_listed(supaclaw: Supaclaw, workspace: Path) -> None:
    supaclaw("checkpoints", "create")
    first = newest(supaclaw)
    (workspace / "b.md").write_text("two")
    supaclaw("checkpoints", "create")
    (workspace / "notes" / "a.md").write_text("changed")

    assert supaclaw("checkpoints", "diff", first[:6], newest(supaclaw), "--json").json == [
        {"change": "added", "path": "b.md"}
    ]
    done = supaclaw("checkpoints", "diff", first[:6])
    assert "b.md" in done.out
    assert "notes/a.md" in done.out


def test_a_restore_can_be_taken_back(supaclaw: Supaclaw, workspace: Path) -> None:
    supaclaw("checkpoints", "create")
    first = newest(supaclaw)
    (workspace / "notes" / "a.md").write_text("changed")
    (workspace / "b.md").write_text("new")

    done = supaclaw("checkpoints", "restore", first[:6], "--yes")

    assert (done.code, (workspace / "notes" / "a.md").read_text()) == (0, "one")
    assert done.out == f"restored {first[:6]}: 1 written, 1 removed; the previous state is {newest(supaclaw)}\n"
    back = supaclaw("checkpoints", "restore", newest(supaclaw), "--path", "notes", "--yes", "--json").json
    assert isinstance(back, dict)
    assert (back["written"], back["removed"], back["left"]) == (1, 0, [])
    assert (workspace / "notes" / "a.md").read_text() == "changed"
    assert not (workspace / "b.md").exists()


def test_what_could_not_be_restored_is_named(supaclaw: Supaclaw, workspace: Path) -> None:
    supaclaw("checkpoints", "create")
    (workspace / "notes" / "a.md").unlink()
    os.mkfifo(workspace / "notes" / "a.md")

    done = supaclaw("checkpoints", "restore", newest(supaclaw), "--yes")

    assert done.code == 1
    assert "notes/a.md was not restored: its current content is in no checkpoint" in done.err


def test_where_nobody_can_be_asked_a_restore_needs_a_yes(supaclaw: Supaclaw, workspace: Path) -> None:
    supaclaw("checkpoints", "create")
    id = newest(supaclaw)
    (workspace / "notes" / "a.md").write_text("changed")

    done = supaclaw("checkpoints", "restore", id)

    assert (done.code, (workspace / "notes" / "a.md").read_text()) == (1, "changed")
    assert done.err == "supaclaw: this changes files of the workspace; add --yes to confirm\n"


@pytest.mark.parametrize(("answer", "content"), [(True, "one"), (False, "changed")])
def test_at_a_terminal_it_asks(
    supaclaw: Supaclaw, workspace: Path, monkeypatch: pytest.MonkeyPatch, answer: bool, content: str
) -> None:
    supaclaw("checkpoints", "create")
    id = newest(supaclaw)
    (workspace / "notes" / "a.md").write_text("changed")
    asked: list[str] = []

    def confirm(question: str, *, default: bool, err: bool) -> bool:
        asked.append(question)
        return answer

    monkeypatch.setattr(output, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(command.typer, "confirm", confirm)
    done = supaclaw("checkpoints", "restore", id, "--path", "notes/a.md")

    assert ((workspace / "notes" / "a.md").read_text(), done.code) == (content, 0 if answer else 1)
    assert asked == [f"Restore notes/a.md from {id}? The current state is saved as a checkpoint first."]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("diff", "zzzz"), "zzzz is not an id"),
        (("diff", "0000"), "there is no checkpoint 0000"),
        (("restore", "0000", "--yes"), "there is no checkpoint 0000"),
        (("restore", "0000", "--path", "../x", "--yes"), "'..' is not allowed"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    supaclaw: Supaclaw, workspace: Path, arguments: tuple[str, ...], problem: str
) -> None:
    done = supaclaw("checkpoints", *arguments)

    assert done.code == 1
    assert problem in done.err
    assert len(done.err.splitlines()) == 1


def test_a_program_at_work_is_waited_for(supaclaw: Supaclaw, workspace: Path, store: Path) -> None:
    supaclaw("checkpoints", "create")
    (workspace / "b.md").write_text("two")
    with open(store / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        letting_go = threading.Timer(1.5, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        letting_go.start()
        done = supaclaw("checkpoints", "create")
        letting_go.join()

    assert done.code == 0
    assert done.out.startswith("made ")


def test_without_a_database_files_can_still_be_kept(
    supaclaw: Supaclaw, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", "postgresql://127.0.0.1:1/none")

    done = supaclaw("checkpoints", "create")

    assert (done.code, done.out.startswith("made ")) == (0, True)
    assert "without the database the checkpoint names no message" in done.err
    assert supaclaw("checkpoints", "restore", "abc", "--yes").code == 1


def test_what_comes_back_is_trusted_as_it_was_and_what_nobody_knows_is_not(
    supaclaw: Supaclaw, workspace: Path, dsn: str
) -> None:
    theirs, mine = "what others said", "by an editor"
    (workspace / "theirs.md").write_text(theirs)
    (workspace / "unknown.md").write_text("from before there were labels")
    supaclaw("checkpoints", "create")
    (workspace / "theirs.md").unlink()
    (workspace / "unknown.md").unlink()
    (workspace / "mine.md").write_text(mine)

    async def labels(*texts: str) -> list[Label | None]:
        async with await Database.connect(dsn) as database, database.connection() as conn:
            owner = await principals.owner(conn)
            id = owner.id if owner else await principals.add(conn, Role.OWNER, "Ada", [])
            if owner is None:
                await contents.note(conn, id, sha256(theirs.encode()).hexdigest(), Label.UNTRUSTED, "agent")
            return [await contents.label(conn, id, sha256(text.encode()).hexdigest()) for text in texts]

    asyncio.run(labels())
    assert supaclaw("checkpoints", "restore", newest(supaclaw), "--path", "unknown.md", "--yes").code == 0
    assert supaclaw("checkpoints", "restore", newest(supaclaw), "--path", "theirs.md", "--yes").code == 1
    oldest = supaclaw("checkpoints", "list", "--json").json[-1]["id"]
    assert supaclaw("checkpoints", "restore", oldest, "--path", "theirs.md", "--yes").code == 0

    found = asyncio.run(labels(theirs, "from before there were labels", mine))
    assert found == [Label.UNTRUSTED, Label.UNTRUSTED, Label.OWNER]
