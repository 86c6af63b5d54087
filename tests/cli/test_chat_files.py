from pathlib import Path

import pytest

from gateway.cli.conversation.chat import ChatClient, PendingFiles, completions
from gateway.domain.conversation.model import ToolCall
from gateway.domain.errors import OwnerMustAct
from tests.cli.test_chat import data, held, place, run, terminal
from tests.web.conftest import MOST, Web, running, web

__all__ = ["data", "held", "running", "web"]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "my notes.txt"
    path.write_text("remember the milk")
    return path


async def test_a_file_goes_with_a_message(web: Web, held: Path, notes: Path):
    code, out, err = await run(web, held, "--file", str(notes), "-f", str(notes), "what is in it?")
    assert (code, err) == (0, "")
    assert "remember the milk" in out
    [(name, text)] = await web.path.rows(
        "select a.name, m.text from attachments a join messages m on m.id = a.message_id"
    )
    assert (name, text) == ("my notes.txt", "what is in it?")


async def test_a_file_is_a_message_of_its_own(web: Web, held: Path, notes: Path):
    assert (await run(web, held, "--file", str(notes)))[0] == 0
    assert await web.path.rows("select text from messages where kind = 'user'") == [("",)]


async def test_what_is_no_file_is_not_sent(web: Web, held: Path, tmp_path: Path):
    code, out, err = await run(web, held, "--file", str(tmp_path / "missing"), "look")
    assert (code, out) == (1, "")
    assert err == f"supaclaw: {tmp_path / 'missing'} is not a file\n"
    assert await web.path.rows("select count(*) from messages") == [(0,)]


async def test_a_file_that_is_too_large_names_the_limit(web: Web, data: Path, tmp_path: Path):
    large = tmp_path / "large.bin"
    large.write_bytes(b"x" * (MOST + 100_000))
    with pytest.raises(OwnerMustAct, match="files of up to 1 MB"):
        await ChatClient(place(web, data)).ask("look", [large])


async def test_files_are_attached_in_a_conversation_and_those_sent_back_are_named(web: Web, held: Path, notes: Path):
    web.model.says(ToolCall("c1", "send_file", '{"path": "report.txt"}'))
    web.model.says("There it is.")
    (web.path.workspace / "report.txt").write_text("words")
    async with terminal(web, held) as person:
        await person.is_asked()
        person.types("/attach /no/such/file\r")
        await person.sees("supaclaw: /no/such/file is not a file")
        await person.is_asked()
        person.types(f"/attach {notes.parent}/my\t")
        await person.sees("notes.txt")
        person.types("\r")
        await person.sees("Sent with your next message: my notes.txt")
        await person.is_asked()
        person.types("/ping\r")
        await person.sees("pong")
        await person.is_asked()
        person.types("/tmp/report, please\r")
        await person.sees("· report.txt · supaclaw files get ")
        await person.is_asked()
        person.types("\x04")
        assert await person.leaves() == 0
    [(name, text)] = await web.path.rows(
        "select a.name, m.text from attachments a join messages m on m.id = a.message_id where m.kind = 'user'"
    )
    assert (name, text) == ("my notes.txt", "/tmp/report, please")


def test_paths_are_taken_as_typed_and_as_a_shell_quotes_them(tmp_path: Path, notes: Path):
    other = tmp_path / "b.txt"
    other.write_text("b")
    tray = PendingFiles()
    assert tray.handle(f"/attach {notes}")
    assert tray.handle(f"/attach '{notes}' {other}")
    assert not tray.handle("/attachment")
    assert tray.take() == (notes, notes, other)
    assert tray.handle("/attach")
    assert tray.take() == ()
    with pytest.raises(OwnerMustAct, match="not a file"):
        tray.handle("/attach it's")


def test_a_path_is_completed_behind_attach_alone(tmp_path: Path, notes: Path):
    (tmp_path / "my folder").mkdir()
    assert completions(f"/attach {tmp_path}/my") == [f"/attach {tmp_path}/my folder/", f"/attach {notes}"]
    assert completions(f"look at {tmp_path}/my") == []
    assert completions("/attach") == []
