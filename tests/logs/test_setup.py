import asyncio
import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from uuid import UUID

import pytest
import structlog
from pydantic import BaseModel, SecretStr

from gateway.logs import SecretMask, logging_to


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [hidden]"),
        ("/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1/getMe", "/bot[hidden]/getMe"),
        ("key sk-proj-abcdefghijkl1234 used", "key [hidden] used"),
        ("claw_abcdefghijklmnop", "[hidden]"),
        ("xoxb-123456789012-abcdef", "[hidden]"),
        ("postgres://me:hush@h/db", "postgres://me:[hidden]@h/db"),
        ("task-force sk-short 12:30", "task-force sk-short 12:30"),
        ("http://h:8787/path", "http://h:8787/path"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_unasked(text: str, shown: str) -> None:
    assert SecretMask().text(text) == shown


def test_the_secrets_of_settings_are_learnt_wherever_they_lie() -> None:
    class Inner(BaseModel):
        token: SecretStr

    class Settings(BaseModel):
        inner: Inner
        by_name: dict[str, SecretStr]
        plain: str

    mask = SecretMask()
    mask.learn(
        Settings(
            inner=Inner(token=SecretStr("one-secret")), by_name={"x": SecretStr("two-secret")}, plain="in the open"
        )
    )

    assert mask.text("one-secret two-secret in the open") == "[hidden] [hidden] in the open"


def test_the_longer_of_two_secrets_goes_first() -> None:
    mask = SecretMask()
    mask.add("secret")
    mask.add("secret-and-more")

    assert mask.text("a secret-and-more b") == "a [hidden] b"


def test_a_word_too_short_to_be_a_secret_is_left_alone() -> None:
    mask = SecretMask()
    mask.add("no")

    assert mask.text("not now") == "not now"


def test_values_json_knows_are_kept() -> None:
    assert SecretMask().value({"n": 1, "t": True, "x": None, "f": 0.5, "d": datetime(2026, 1, 1, tzinfo=UTC)}) == {
        "n": 1,
        "t": True,
        "x": None,
        "f": 0.5,
        "d": "2026-01-01T00:00:00+00:00",
    }


SESSION = "0b0c1111-1111-4111-8111-111111111111"


class Full(io.StringIO):
    """A disk without room."""

    def write(self, _: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.fixture
def mask() -> SecretMask:
    mask = SecretMask()
    mask.add("hunter22")
    return mask


@pytest.fixture
def console() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def folder(tmp_path: Path, mask: SecretMask, console: io.StringIO) -> Iterator[Path]:
    with logging_to(tmp_path / "logs", mask, console):
        yield tmp_path / "logs"


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "gateway.log").read_text().splitlines()]


def library_says(message: object, *arguments: object) -> None:
    """To our handler alone: pytest's own, which listens too, does not forgive what is broken."""
    (ours,) = [each for each in logging.getLogger().handlers if type(each).__module__ == "gateway.logs.setup"]
    ours.handle(logging.LogRecord("aiogram", logging.ERROR, "", 1, message, arguments, None))


def test_an_event_is_a_line_of_json_and_one_for_people(folder: Path, console: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(turn=7):
        structlog.get_logger().info("turn.finished", tokens=3, at=Path("/x"), id=UUID(int=1), tags={"a"})

    (line,) = lines(folder)
    timestamp = line.pop("timestamp")
    assert datetime.fromisoformat(str(timestamp)).tzinfo is not None
    assert line == {
        "event": "turn.finished",
        "level": "info",
        "turn": 7,
        "tokens": 3,
        "at": "/x",
        "id": "00000000-0000-0000-0000-000000000001",
        "tags": ["a"],
    }
    assert "turn.finished" in console.getvalue()
    assert "tokens=3" in console.getvalue()
    assert "\x1b" not in console.getvalue()


def test_an_exception_is_told_with_its_place_and_without_its_variables(folder: Path, console: io.StringIO) -> None:
    def fail() -> None:
        inner = "hunter" + "23"
        raise ValueError(f"bad {len(inner)}")

    try:
        fail()
    except ValueError:
        structlog.get_logger().exception("turn.failed")

    (line,) = lines(folder)
    assert "ValueError: bad 8" in str(line["exception"])
    assert "ValueError: bad 8" in console.getvalue()
    assert "hunter23" not in console.getvalue()


def test_other_libraries_are_heard_from_warnings_up(folder: Path) -> None:
    logging.getLogger("aiogram").warning("slow by %d s", 3)
    logging.getLogger("aiogram").info("chatter")

    (line,) = lines(folder)
    assert (line["event"], line["level"], line["logger"]) == ("slow by 3 s", "warning", "aiogram")


def test_below_the_level_nothing_is_written(folder: Path) -> None:
    structlog.get_logger().debug("detail")

    assert not (folder / "gateway.log").exists()


def test_no_secret_reaches_any_log(folder: Path, console: io.StringIO) -> None:
    class Holder:
        def __repr__(self) -> str:
            return "Holder(hunter22)"

    log = structlog.get_logger()
    log.info("in hunter22", value="hunter22", deep={"hunter22": ["hunter22", Holder()]}, thing=Holder())
    logging.getLogger("x").warning("got %s", "hunter22")
    try:
        {}["hunter22"]
    except KeyError:
        log.exception("failed")

    assert len(lines(folder)) == 3
    assert "hunter22" not in (folder / "gateway.log").read_text() + console.getvalue()


def test_a_restart_goes_on_in_the_same_file_for_the_owners_eyes_only(tmp_path: Path, mask: SecretMask) -> None:
    for _ in range(2):
        with logging_to(tmp_path / "logs", mask, io.StringIO()):
            structlog.get_logger().info("gateway.ready")

    assert len(lines(tmp_path / "logs")) == 2
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "logs" / "gateway.log").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path: Path, console: io.StringIO) -> None:
    (tmp_path / "logs").write_text("a file, not a folder")

    with logging_to(tmp_path / "logs", SecretMask(), console):
        structlog.get_logger().info("still.here")

    assert "still.here" in console.getvalue()


def test_a_console_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    with logging_to(tmp_path, SecretMask(), Full()):
        structlog.get_logger().info("still.here")

    assert lines(tmp_path)[0]["event"] == "still.here"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_stops_nobody(tmp_path: Path, console: io.StringIO) -> None:
    (tmp_path / "gateway-2026-01-01.log").symlink_to("/dev/full")

    with logging_to(tmp_path, SecretMask(), console, today=lambda: date(2026, 1, 1)):
        structlog.get_logger().info("one")
        structlog.get_logger().info("two")

    assert "two" in console.getvalue()


def test_afterwards_nothing_is_left_behind(folder: Path) -> None:
    assert folder.parent.exists()
    before = logging.getLogger().handlers.copy()

    with logging_to(None, SecretMask(), io.StringIO()):
        assert logging.getLogger().handlers != before

    assert logging.getLogger().handlers == before


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_a_fact_that_cannot_be_shown_is_left_out_and_stops_nobody(folder: Path) -> None:
    itself: dict[str, object] = {}
    itself["me"] = itself

    structlog.get_logger().info("ours", thing=Broken(), round=itself, session_id=SESSION)
    library_says("theirs %s", Broken())

    assert [line["event"] for line in lines(folder)] == ["ours", "theirs %s"]
    assert lines(folder)[0].keys() == {"timestamp", "level", "event", "session_id"}


def test_an_error_that_cannot_be_shown_is_still_told_with_its_place(folder: Path) -> None:
    class Silent(Exception):
        __str__ = __repr__ = Broken.__repr__

    def fail() -> None:
        raise Silent

    try:
        fail()
    except Silent:
        structlog.get_logger().exception("failed")
        logging.getLogger("x").exception("theirs")

    assert [("Silent" in str(line["exception"]), line["event"]) for line in lines(folder)] == [
        (True, "failed"),
        (True, "theirs"),
    ]


def test_a_librarys_own_level_counts_as_the_one_below(folder: Path) -> None:
    logging.getLogger("x").log(35, "notice")
    logging.getLogger("x").log(99, "the end")

    assert [line["level"] for line in lines(folder)] == ["warning", "critical"]


def test_half_a_character_is_written_and_read_back(folder: Path) -> None:
    structlog.get_logger().info("x", text="\ud83d")

    assert lines(folder)[0]["text"] == "\ud83d"


def session_lines(folder: Path, session: str = SESSION) -> list[dict[str, object]]:
    (file,) = (folder / "sessions" / session).iterdir()
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_belongs_to_a_session_is_also_in_its_own_log(folder: Path, mask: SecretMask) -> None:
    log = structlog.get_logger()

    log.info("before")
    with structlog.contextvars.bound_contextvars(session_id=SESSION, task_id="7"):
        log.info("inside", password="hunter22")
    log.info("after")

    (line,) = session_lines(folder)
    assert (line["event"], line["task_id"], line["password"]) == ("inside", "7", "[hidden]")
    assert line == lines(folder)[1]
    assert len(lines(folder)) == 3


async def test_what_a_library_says_inside_a_run_carries_the_ids_of_that_run(folder: Path) -> None:
    async def library(name: str) -> None:
        await asyncio.sleep(0)
        logging.getLogger("openai").warning("retry %s", name)
        await asyncio.to_thread(logging.getLogger("aiogram").error, "thread %s", name)

    async def run(session: str) -> None:
        with structlog.contextvars.bound_contextvars(session_id=session):
            await library(session)
            await asyncio.create_task(library("task"))

    other = SESSION.replace("0b0c", "0b0d")
    await asyncio.gather(run(SESSION), run(other))

    for session in (SESSION, other):
        said = [line["event"] for line in session_lines(folder, session)]
        assert said == [f"retry {session}", f"thread {session}", "retry task", "thread task"]


def test_an_id_that_could_not_be_ours_makes_no_file(folder: Path) -> None:
    structlog.get_logger().info("x", session_id="../../x")

    assert not (folder / "sessions").exists()
    assert len(lines(folder)) == 1


def test_a_sessions_log_that_cannot_be_written_does_not_stop_the_others(folder: Path, console: io.StringIO) -> None:
    folder.mkdir()
    (folder / "sessions").write_text("a file, not a folder")

    structlog.get_logger().info("still.here", session_id=SESSION)

    assert [line["event"] for line in lines(folder)] == ["still.here"]
    assert "still.here" in console.getvalue()


def test_a_daily_file_that_cannot_be_written_does_not_stop_the_sessions(tmp_path: Path) -> None:
    (tmp_path / "gateway-2026-01-01.log").mkdir()

    with logging_to(tmp_path, SecretMask(), io.StringIO(), today=lambda: date(2026, 1, 1)):
        structlog.get_logger().info("still.here", session_id=SESSION)

    assert [line["event"] for line in session_lines(tmp_path)] == ["still.here"]
