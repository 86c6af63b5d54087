import asyncio
import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gateway.config.environment import Environment
from gateway.domain.principals import Label, Role
from gateway.ingest.output import LOCKED as PASSWORD_NEEDED
from gateway.store.connection.pool import Database
from gateway.store.files import contents, files
from gateway.store.files.files import FileRow
from gateway.store.people import principals
from gateway.workspace.locks import LockKeeper, OwnerEdits, note_owner_edits
from tests.cli.conftest import Done, Supaclaw
from tests.ingest.samples import unlockable_pdf


@pytest.fixture
def report(dsn: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> FileRow:
    """A file of the owner's, and one of somebody else's."""
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    workspace = Environment.read(os.environ).workspace
    (workspace / "notes").mkdir(parents=True)
    (workspace / "notes" / "report.txt").write_bytes(b"words\n")

    async def kept() -> FileRow:
        async with await Database.connect(dsn) as database, database.connection() as conn:
            owner = await principals.add(conn, Role.OWNER, "Ada", [])
            other = await principals.ensure_member(conn, "Bo", "telegram:7")
            await files.keep(conn, other, "x.txt", size=1, mime="", sha256="", label=Label.KNOWN, origin="telegram")
            return await files.keep(
                conn,
                owner,
                "notes/report.txt",
                size=6,
                mime="text/plain",
                sha256=hashlib.sha256(b"words\n").hexdigest(),
                label=Label.OWNER,
                origin="web",
            )

    return asyncio.run(kept())


def test_the_owners_files_are_listed(supaclaw: Supaclaw, report: FileRow):
    [listed] = supaclaw("files", "list", "--json").json
    assert (listed["id"], listed["path"], listed["size"]) == (str(report.id), "notes/report.txt", 6)
    assert f"{report.id}   notes/report.txt   6 B    yours" in supaclaw("files", "list").out


def test_a_file_is_fetched_into_the_folder_and_nothing_is_overwritten(supaclaw: Supaclaw, report: FileRow, place: Path):
    done = supaclaw("files", "get", str(report.id))
    assert (done.code, done.out) == (0, "report.txt\n")
    assert (place / "report.txt").read_bytes() == b"words\n"
    again = supaclaw("files", "get", str(report.id))
    assert (again.code, again.err) == (
        1,
        "supaclaw: report.txt already exists; choose another name with --output\n",
    )


def test_a_file_is_fetched_by_its_path_too(supaclaw: Supaclaw, report: FileRow, place: Path):
    assert supaclaw("files", "get", "notes/report.txt").out == "report.txt\n"
    assert (place / "report.txt").read_bytes() == b"words\n"
    assert "notes/nope.txt does not exist" in supaclaw("files", "get", "notes/nope.txt").err


def test_a_file_is_fetched_under_another_name_or_printed(supaclaw: Supaclaw, report: FileRow, place: Path):
    assert supaclaw("files", "get", str(report.id), "--output", "copy.txt").out == "copy.txt\n"
    assert (place / "copy.txt").read_bytes() == b"words\n"
    assert supaclaw("files", "get", str(report.id), "-o", "-").out == "words\n"
    nowhere = supaclaw("files", "get", str(report.id), "-o", "missing/copy.txt")
    assert nowhere.err == "supaclaw: missing/copy.txt cannot be written: No such file or directory\n"


def test_a_file_that_is_not_there_says_so(supaclaw: Supaclaw, report: FileRow):
    unknown = uuid4()
    assert supaclaw("files", "get", str(unknown)).err.startswith(f"supaclaw: there is no file {unknown}")
    (Environment.read(os.environ).workspace / report.path).unlink()
    assert "does not exist" in supaclaw("files", "get", str(report.id)).err


def test_a_file_of_others_is_vouched_for_as_it_is_now(
    supaclaw: Supaclaw, report: FileRow, dsn: str, monkeypatch: pytest.MonkeyPatch
):
    async def taint() -> None:
        async with await Database.connect(dsn) as database, database.connection() as conn:
            await contents.note(conn, report.principal_id, report.sha256, Label.UNTRUSTED, "agent")

    asyncio.run(taint())
    assert supaclaw("files", "list", "--json").json[0]["trust"] == "not vouched for"
    unasked = supaclaw("files", "vouch", "notes/report.txt")
    assert (unasked.code, "add --yes" in unasked.err) == (1, True)
    assert supaclaw("files", "vouch", "notes/nothing.md", "--yes").code == 1

    (Environment.read(os.environ).workspace / "esc.md").write_text("\x1b[2Jgone\n")
    done = supaclaw("files", "vouch", "notes/report.txt", "esc.md", "--yes")

    assert (done.code, done.out.splitlines()[1]) == (0, "    words")
    assert done.out.startswith("notes/report.txt: 6 bytes, changed 20")
    assert "\x1b" not in done.out
    assert supaclaw("files", "list", "--json").json[0]["trust"] == "yours"


LOCKED = "<!-- CORE:LOCK -->\nrules\n<!-- /CORE:LOCK -->\n"


def test_the_tree_says_what_is_locked(supaclaw: Supaclaw, report: FileRow) -> None:
    root = Environment.read(os.environ).workspace
    (root / "AGENTS.md").write_text(LOCKED)
    rows = supaclaw("files", "tree", "--json").json
    assert [(row["path"], row["type"], row["locked"]) for row in rows] == [
        ("AGENTS.md", "file", "locked"),
        ("notes", "folder", ""),
        ("notes/report.txt", "file", ""),
    ]
    assert [row["path"] for row in supaclaw("files", "tree", "notes", "--json").json] == ["notes/report.txt"]


def test_the_owner_writes_locked_text_and_the_gateway_learns_whose_it_is(
    supaclaw: Supaclaw, report: FileRow, place: Path
) -> None:
    environment = Environment.read(os.environ)
    (environment.workspace / "AGENTS.md").write_text(LOCKED)
    keeper = LockKeeper(environment.workspace, place / "aside", OwnerEdits(environment.data))
    keeper.renew()
    edited = LOCKED.replace("rules", "other rules")
    (place / "mine.md").write_text(edited)
    assert supaclaw("files", "put", "AGENTS.md", str(place / "mine.md")).out == "wrote AGENTS.md\n"
    assert keeper.check() == []
    assert (environment.workspace / "AGENTS.md").read_text() == edited
    [row] = [row for row in supaclaw("files", "list", "--json").json if row["path"] == "AGENTS.md"]
    assert row["trust"] == "yours"


def test_an_edit_never_overwrites_a_newer_version(
    supaclaw: Supaclaw, report: FileRow, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Environment.read(os.environ).workspace / "notes/report.txt"
    script = place / "editor.sh"
    script.write_text("#!/bin/sh\necho mine > $1\n")
    script.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(script))
    assert supaclaw("files", "edit", "notes/report.txt").out == "wrote notes/report.txt\n"
    assert file.read_text() == "mine\n"
    assert supaclaw("files", "edit", "notes/report.txt").out == "nothing was changed\n"
    script.write_text(f"#!/bin/sh\necho newer > {file}\necho other > $1\n")
    refused = supaclaw("files", "edit", "notes/report.txt")
    assert refused.code == 1
    assert "has changed meanwhile" in refused.err
    assert "newer" in refused.err
    assert file.read_text() == "newer\n"
    assert list(place.rglob("report.txt.mine"))
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert "the editor failed" in supaclaw("files", "edit", "notes/report.txt").err


def test_a_restore_of_locked_text_is_the_owners(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/AGENTS.md").write_text("<!-- CORE:LOCK --> new")
    keeper = LockKeeper(tmp_path / "w", tmp_path / "aside", OwnerEdits(tmp_path))
    keeper.renew()
    (tmp_path / "w/AGENTS.md").write_text(LOCKED)
    note_owner_edits(tmp_path / "w", tmp_path)
    assert keeper.check() == []


def test_lines_are_found(supaclaw: Supaclaw, report: FileRow) -> None:
    workspace = Environment.read(os.environ).workspace
    (workspace / "notes" / "b.md").write_text("one\nTwo words\n")
    assert supaclaw("files", "search", "WORDS", "--json").json == [
        {"path": "notes/b.md", "line": 2, "text": "Two words"},
        {"path": "notes/report.txt", "line": 1, "text": "words"},
    ]
    assert len(supaclaw("files", "search", "^w", "notes", "--regex", "--json").json) == 1
    assert supaclaw("files", "search", "words", "--glob", "*.csv").out == "No matches.\n"
    assert supaclaw("files", "search", "(", "--regex").code == 1


def test_a_move_and_a_deletion_can_be_undone(supaclaw: Supaclaw, report: FileRow) -> None:
    workspace = Environment.read(os.environ).workspace
    (workspace / "notes" / "b.md").write_text("<!-- CORE:LOCK -->\nmine\n")

    taken = supaclaw("files", "move", "notes/b.md", "notes/report.txt")
    moved = supaclaw("files", "move", "notes/b.md", "old/b.md")
    unsure = supaclaw("files", "delete", "old/b.md")
    missing = supaclaw("files", "delete", "old/b.md", "nothing.md", "--yes")
    gone = supaclaw("files", "delete", "old/b.md", "--yes")

    assert (taken.code, "exists already" in taken.err) == (1, True)
    assert (moved.code, moved.out) == (0, "moved notes/b.md to old/b.md\n")
    assert (unsure.code, "add --yes" in unsure.err) == (1, True)
    assert (missing.code, missing.out) == (1, "")
    assert (gone.code, gone.out) == (0, "deleted old/b.md\n")
    assert not (workspace / "old").exists()
    reasons = [row["reason"] for row in supaclaw("checkpoints", "list", "--json").json]
    assert reasons == ["before a deletion", "before a move"]
    last = supaclaw("checkpoints", "list", "--json").json[0]["id"]
    assert supaclaw("checkpoints", "restore", last, "--path", "old/b.md", "--yes").code == 0
    assert (workspace / "old" / "b.md").read_text() == "<!-- CORE:LOCK -->\nmine\n"


def test_a_file_stays_as_untrusted_as_it_was_where_it_is_moved(supaclaw: Supaclaw, report: FileRow, dsn: str) -> None:
    workspace = Environment.read(os.environ).workspace
    (workspace / "uploads").mkdir()
    (workspace / "uploads" / "letter.txt").write_text("from a stranger")

    assert supaclaw("files", "move", "uploads/letter.txt", "letter.txt").code == 0

    async def label() -> Label | None:
        async with await Database.connect(dsn) as database, database.connection() as conn:
            owner = await principals.owner(conn)
            assert owner is not None
            return await contents.label(conn, owner.id, hashlib.sha256(b"from a stranger").hexdigest())

    assert asyncio.run(label()) is Label.UNTRUSTED


def test_a_folder_is_saved_as_a_zip(supaclaw: Supaclaw, report: FileRow, place: Path) -> None:
    done = supaclaw("files", "zip", "notes")
    again = supaclaw("files", "zip", "notes")
    with zipfile.ZipFile(place / "notes.zip") as archive:
        assert archive.namelist() == ["report.txt"]
        assert archive.read("report.txt") == b"words\n"
    assert (done.code, done.out) == (0, "notes.zip\n")
    assert (again.code, "already exists" in again.err) == (1, True)
    assert supaclaw("files", "zip", "nowhere").code == 1


def test_a_locked_file_is_read_with_a_password_that_is_kept_nowhere(
    supaclaw: Supaclaw, report: FileRow, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Environment.read(os.environ).workspace
    locked = unlockable_pdf("The code is 4711.", b"sesame 9")
    (workspace / "notes/a.pdf").write_bytes(locked)

    async def stored(row: dict[str, Any] | None = None) -> FileRow | None:
        async with await Database.connect(dsn) as database, database.connection() as conn:
            if row:
                facts = {"mime": "application/pdf", "label": Label.UNTRUSTED, "origin": "telegram"}
                file = await files.keep(conn, report.principal_id, "notes/a.pdf", **row, **facts)
                await files.derived(conn, file.id, problem=PASSWORD_NEEDED)
            return await files.get(conn, report.principal_id, "notes/a.pdf")

    asyncio.run(stored({"size": len(locked), "sha256": hashlib.sha256(locked).hexdigest()}))

    def unlock(password: str, path: str = "notes/a.pdf") -> Done:
        monkeypatch.setattr("gateway.cli.storage.files.ask_secret_line", lambda _question: password)
        return supaclaw("files", "unlock", path)

    assert unlock("").err.endswith("supaclaw: no password was given; nothing was read\n")
    wrong = unlock("sesame 8")
    assert (wrong.code, wrong.err.splitlines()[-1]) == (
        1,
        "supaclaw: the password of notes/a.pdf is wrong; nothing was read",
    )
    assert "not a file that needs a password" in unlock("x", "notes/report.txt").err
    assert "your agent can read notes/a.pdf now" in unlock("sesame 9").out
    row = asyncio.run(stored())
    assert row is not None
    assert (row.problem, row.text_path, row.pages) == ("", "notes/a.pdf.txt", 1)
    assert "4711" in (workspace / row.text_path).read_text()
    kept = [path for path in workspace.parent.rglob("*") if path.is_file() and b"sesame 9" in path.read_bytes()]
    assert kept == []
