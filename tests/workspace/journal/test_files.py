import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta, timezone
from html import escape as html_escape
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.journal import files
from gateway.workspace.journal.files import (
    MAX_SUMMARY_LINE,
    IndexLine,
    Place,
    began,
    filed_path,
    render_index,
    render_line,
    summarise,
)
from tests.workspace.journal.entries import AT

PATH = "sessions/2026-03-01/12-30-15.md"


def mode(path: Path) -> int:
    return os.stat(path).st_mode & 0o777


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


@pytest.fixture
def place(root: Path) -> Place:
    return files.create(root, AT)


@contextmanager
def disk_full_at(size: int) -> Iterator[None]:
    """No file may grow beyond this: what the kernel says is another error than ENOSPC, and comes at the same place."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


class TestNewFiles:
    def test_one_is_named_after_its_second_and_for_the_gateway_alone(self, root: Path, place: Place) -> None:
        assert place.path == PATH
        assert files.read(place)[0] == b""
        assert mode(root / PATH) == 0o600
        assert [mode(folder) for folder in (root / "sessions", (root / PATH).parent)] == [0o700, 0o700]

    def test_a_taken_name_moves_to_the_next_free_second(self, root: Path, place: Place) -> None:
        assert files.create(root, AT).path == "sessions/2026-03-01/12-30-16.md"
        assert (root / PATH).exists()

    def test_nor_is_one_taken_that_was_filed(self, root: Path) -> None:
        (root / "memory").mkdir()
        (root / "memory" / "20260301123015.md").touch()
        assert files.create(root, AT).path == "sessions/2026-03-01/12-30-16.md"

    def test_names_move_into_the_next_day(self, root: Path) -> None:
        late = AT.replace(hour=23, minute=59, second=59)
        given = [files.create(root, late).path for _ in range(2)]
        assert given == ["sessions/2026-03-01/23-59-59.md", "sessions/2026-03-02/00-00-00.md"]

    def test_a_second_of_utc_names_a_file_open_or_filed(self, root: Path) -> None:
        place = files.create(root, AT.astimezone(timezone(timedelta(hours=5))))
        assert (place.path, filed_path(AT)) == (PATH, "memory/20260301123015.md")
        assert began(place.path) == began(filed_path(AT)) == AT.replace(microsecond=0)

    def test_a_missing_root_is_made(self, tmp_path: Path) -> None:
        place = files.create(tmp_path / "principals" / "x", AT)
        assert mode(place.root) == 0o700


class TestLinks:
    @pytest.mark.parametrize("linked", ["sessions", "sessions/2026-03-01"])
    def test_a_linked_folder_is_refused_and_nothing_is_written_there(self, root: Path, linked: str) -> None:
        outside = root.parent / "outside"
        outside.mkdir()
        (root / linked).parent.mkdir(exist_ok=True)
        (root / linked).symlink_to(outside)
        (outside / "12-30-15.md").write_text("theirs")
        with pytest.raises(OSError, match="directory"):
            files.create(root, AT)
        for work in (files.sync, files.read, files.make):
            with pytest.raises(OSError, match="directory"):
                work(Place(root, PATH))
        assert os.listdir(outside) == ["12-30-15.md"]

    def test_a_linked_file_counts_as_gone(self, root: Path) -> None:
        (root / PATH).parent.mkdir(parents=True)
        (root.parent / "secret").write_text("theirs")
        (root / PATH).symlink_to(root.parent / "secret")
        with pytest.raises(FileNotFoundError):
            files.append(Place(root, PATH), b"x")
        assert files.read(Place(root, PATH))[0] is None
        assert (root / f"{PATH}.aside").is_symlink()
        assert list(files.sessions(root)) == []
        assert (root.parent / "secret").read_text() == "theirs"

    @pytest.mark.parametrize("kind", [os.mkfifo, os.mkdir, huge])
    def test_what_can_be_no_journal_is_moved_aside_and_nobody_waits_for_it(
        self, root: Path, kind: Callable[[Path], None]
    ) -> None:
        (root / PATH).parent.mkdir(parents=True)
        kind(root / PATH)
        assert files.read(Place(root, PATH))[0] is None
        assert os.listdir((root / PATH).parent) == [f"{(root / PATH).name}.aside"]
        with pytest.raises(FileNotFoundError):
            files.append(Place(root, PATH), b"x")

    def test_replacing_replaces_a_link_with_nothing(self, root: Path) -> None:
        (root / "memory").mkdir()
        (root / "memory" / "INDEX.md").symlink_to(root / "elsewhere")
        with pytest.raises(WorkspaceError):
            files.replace(Place(root, "memory/INDEX.md"), b"x")
        assert not (root / "elsewhere").exists()


class TestWriting:
    def test_what_is_appended_stands_at_the_end(self, place: Place) -> None:
        for part in (b"one", b"\r\n", b"two"):
            files.append(place, part)
        assert files.read(place)[0] == b"one\r\ntwo"

    def test_a_file_that_is_gone_is_not_made_again(self, root: Path, place: Place) -> None:
        (root / PATH).unlink()
        with pytest.raises(FileNotFoundError):
            files.append(place, b"x")
        with pytest.raises(FileNotFoundError):
            files.sync(place)
        assert files.read(place)[0] is None

    def test_what_does_not_fit_is_taken_back(self, place: Place) -> None:
        files.append(place, b"whole")
        with disk_full_at(10), pytest.raises(OSError, match="too large"):
            files.append(place, b"x" * 100)
        assert files.read(place)[0] == b"whole"

    def test_making_one_leaves_what_is_there(self, root: Path, place: Place) -> None:
        files.append(place, b"x")
        assert not files.make(place)
        assert files.read(place)[0] == b"x"
        (root / PATH).unlink()
        assert files.make(place)
        assert files.read(place)[0] == b""

    def test_a_replaced_file_is_the_gateways_alone_also_where_none_was(self, root: Path, place: Place) -> None:
        filed = Place(root, "memory/20260301123015.md")
        for each in (place, filed):
            files.replace(each, b"new")
            assert files.read(each)[0] == b"new"
            assert mode(root / each.path) == 0o600

    def test_syncing_changes_nothing(self, place: Place) -> None:
        files.append(place, b"x")
        files.sync(place)
        assert files.read(place)[0] == b"x"


class TestRemoving:
    def test_its_empty_day_goes_with_it(self, root: Path, place: Place) -> None:
        for _ in range(2):
            files.remove(place)
            assert os.listdir(root / "sessions") == []

    def test_a_day_with_others_stays(self, root: Path, place: Place) -> None:
        other = files.create(root, AT)
        files.remove(place)
        assert files.read(place)[0] is None
        assert files.read(other)[0] == b""


class TestLookingThrough:
    def test_it_finds_session_files_and_nothing_else(self, root: Path, place: Place) -> None:
        day = root / "sessions" / "2026-03-01"
        for name in ("notes.md", "12-30-15.md.bak", ".writing-1"):
            (day / name).touch()
        (root / "sessions" / "notes").mkdir()
        (root / "sessions" / "notes" / "12-30-15.md").touch()
        files.make(Place(root, "sessions/heartbeat/2026-11-21/12-30-15.md"))
        (day / "13-00-00.md").mkdir()
        assert list(files.sessions(root)) == [(place, files.version(place))]

    def test_no_sessions_are_none(self, root: Path) -> None:
        assert list(files.sessions(root)) == []
        assert list(files.sessions(root / "missing")) == []


def line(summary: str = "hello", channel: str = "web") -> IndexLine:
    return IndexLine(AT, channel, summary)


class TestSummary:
    def test_it_says_what_was_asked_how_much_was_said_and_how_it_ended(self) -> None:
        said = ("Where is\nthe key?", "Under the mat.\n\nAnything else?", 4)
        assert summarise(*said) == "Where is the key? (4 messages)\n→ Under the mat. Anything else?"

    def test_long_words_are_cut(self) -> None:
        asked, answered = summarise("a" * 1000, "b" * 1000, 2).splitlines()
        assert asked == f"{'a' * (MAX_SUMMARY_LINE - 1)}… (2 messages)"
        assert answered == f"→ {'b' * (MAX_SUMMARY_LINE - 1)}…"

    def test_what_has_no_answer_is_one_line(self) -> None:
        assert summarise("hello?", "", 1) == "hello? (1 message)"

    def test_an_answer_nobody_asked_for_says_so(self) -> None:
        assert summarise("", "Good morning", 1) == "No question (1 message)\n→ Good morning"

    def test_a_conversation_of_nothing_but_commands_says_so(self) -> None:
        assert summarise("", "", 0) == "Nothing was said."


class TestIndex:
    def test_each_conversation_has_its_link_date_channel_and_summary(self) -> None:
        assert render_index([line(summary="one\n→ two\nthree")]).endswith(
            "\n- [2026-03-01 12:30](20260301123015.md) · web · one\n  → two\n"
        )

    def test_the_newest_comes_last_so_that_it_can_be_added(self) -> None:
        later = IndexLine(AT + timedelta(days=1), "", "later")
        first = line(summary="earlier")
        assert render_index([later, first]) == render_index([first]) + render_line(later)

    @pytest.mark.parametrize("marker", ["-", "+", "*", "1.", "2)", "#", ">"])
    def test_words_of_a_conversation_work_no_markup(self, marker: str) -> None:
        nasty = f"[click](http://evil) <b>x</b> `code` **bold** # title <!-- claw -->\n{marker} item"
        html = MarkdownIt("commonmark").render(render_index([line(summary=nasty, channel="<i>")]))
        assert html.count("<a ") == 1
        for tag in ("<b>", "<code>", "<strong>", "<i>", "<!--"):
            assert tag not in html
        assert html.count("<h1>") == 1
        assert html.count("<li>") == 1
        assert f"{html_escape(marker)} item" in html

    def test_an_empty_summary_says_so(self) -> None:
        assert "No summary." in render_index([line(summary="\n")])
