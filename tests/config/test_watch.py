import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict, WrappedLogger

from gateway.config.channels import check_channels
from gateway.config.load import parse
from gateway.config.model import Config
from gateway.config.watch import ConfigWatch


def checked(text: str) -> Config:
    config = parse(text, {})
    check_channels(config)
    return config


class Watched:
    """A config file under watch, and everything the watch said."""

    def __init__(self, folder: Path, text: str | None = "{}") -> None:
        self.path = folder / "config.json"
        if text is not None:
            self.path.write_text(text)
        self.configs: asyncio.Queue[Config] = asyncio.Queue()
        self.rejections: asyncio.Queue[str] = asyncio.Queue()
        self.watch = ConfigWatch(self.path, Config(), checked, self.rejections.put, 0.1, _keys=dict)
        self.watch.subscribe(self.configs.put)

    async def write(self, text: str) -> None:
        """As careful editors do: beside it, then over it."""
        beside = self.path.with_suffix(".tmp")
        beside.write_text(text)
        beside.replace(self.path)
        await self.watch.look()

    @property
    def silent(self) -> bool:
        return self.configs.empty() and self.rejections.empty()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.watch.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


async def test_a_good_edit_is_handed_on(watched: Watched) -> None:
    await watched.write('{"compaction": {"at_tokens": 5}}')

    assert watched.configs.get_nowait().compaction.at_tokens == 5
    assert watched.watch.current.compaction.at_tokens == 5
    assert watched.silent


async def test_an_edit_that_changes_nothing_is_not_handed_on(watched: Watched) -> None:
    await watched.watch.look()
    await watched.write("{ }")

    assert watched.silent


async def test_a_bad_edit_keeps_the_old_and_is_told_once(watched: Watched) -> None:
    await watched.write('{"compaction": {"at_tokens": 5}}')
    watched.configs.get_nowait()

    await watched.write('{"compaction": {"at_to')
    await watched.watch.look()

    problem, kept = watched.rejections.get_nowait().splitlines()
    assert problem.startswith("config.json: line 1, column 17: Unterminated string; JSON has no comments")
    assert kept == "The last good version is still in use."
    assert watched.watch.current.compaction.at_tokens == 5
    assert watched.silent


async def test_a_good_edit_after_a_bad_one_counts(watched: Watched) -> None:
    await watched.write("{")
    await watched.write('{"compaction": {"at_tokens": 6}}')

    assert watched.configs.get_nowait().compaction.at_tokens == 6


async def test_a_deleted_file_keeps_the_old_and_a_new_one_counts(watched: Watched) -> None:
    await watched.write('{"compaction": {"at_tokens": 5}}')
    watched.path.unlink()
    await watched.watch.look()

    assert watched.rejections.get_nowait().startswith(f"{watched.path} is gone")
    assert watched.watch.current.compaction.at_tokens == 5

    await watched.write('{"compaction": {"at_tokens": 6}}')

    assert watched.watch.current.compaction.at_tokens == 6


async def test_a_file_that_cannot_be_read_keeps_the_old(watched: Watched) -> None:
    watched.path.write_bytes(b"\xff\xff")

    await watched.watch.look()

    assert "it is not UTF-8 text" in watched.rejections.get_nowait()


async def test_what_needs_a_restart_stays_and_the_rest_is_applied(watched: Watched) -> None:
    await watched.write('{"web": {"port": 1}, "database": {"url": "postgres://h/d"}, "compaction": {"at_tokens": 7}}')

    config = watched.configs.get_nowait()
    assert config.compaction.at_tokens == 7
    assert config.web.port == 8787
    assert config.database.url is None


async def test_a_subscriber_that_fails_stops_nobody_else(watched: Watched) -> None:
    async def fail(_: Config) -> None:
        raise KeyError

    later: asyncio.Queue[Config] = asyncio.Queue()
    watched.watch.subscribe(fail)
    watched.watch.subscribe(later.put)

    await watched.write('{"compaction": {"at_tokens": 5}}')

    assert later.get_nowait().compaction.at_tokens == 5
    assert "in part" in watched.rejections.get_nowait()


async def test_an_edit_made_before_the_watch_began_is_found(tmp_path: Path) -> None:
    watched = Watched(tmp_path, '{"compaction": {"at_tokens": 5}}')

    async with watched.running():
        config = await watched.configs.get()

    assert config.compaction.at_tokens == 5


async def test_no_file_at_the_start_is_no_news(tmp_path: Path) -> None:
    watched = Watched(tmp_path, None)

    await watched.watch.look()

    assert watched.silent


async def test_a_running_watch_sees_one_edit_after_another(watched: Watched) -> None:
    async with watched.running():
        watched.path.write_text('{"compaction": {"at_tokens": 5}}')
        first = await watched.configs.get()
        watched.path.write_text('{"compaction": {"at_tokens": 6}}')
        second = await watched.configs.get()

    assert (first.compaction.at_tokens, second.compaction.at_tokens) == (5, 6)


async def test_where_the_system_reports_nothing_the_file_is_read_at_intervals(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "later", None)

    polled = asyncio.Event()

    def notice(_logger: WrappedLogger, _method: str, entry: EventDict) -> EventDict:
        if entry["event"] == "config.polled":
            polled.set()
        return entry

    with capture_logs(processors=[notice]):
        async with watched.running():
            await polled.wait()
            watched.path.parent.mkdir()
            watched.path.write_text('{"compaction": {"at_tokens": 5}}')
            config = await watched.configs.get()

    assert config.compaction.at_tokens == 5


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path)


def blanks(path: Path) -> None:
    path.write_bytes(b" " * 50_000_000)


def holes(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (os.mkfifo, "not a regular file"),
        (zeros, "not a regular file"),
        (os.mkdir, "is a folder"),
        (loop, "Too many levels"),
        (blanks, "more than 1,048,576 bytes"),
        (holes, "more than 1,048,576 bytes"),
    ],
)
async def test_what_is_no_configuration_keeps_the_old_and_is_told_once(
    watched: Watched, kind: Callable[[Path], None], why: str
) -> None:
    await watched.write('{"compaction": {"at_tokens": 5}}')
    watched.configs.get_nowait()
    watched.path.unlink()
    kind(watched.path)

    await watched.watch.look()
    await watched.watch.look()

    assert why in watched.rejections.get_nowait()
    assert watched.watch.current.compaction.at_tokens == 5
    assert watched.silent


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ' + "9" * 5000 + "}",
        "[" * 200_000,
        "{" + ",".join(f'"k{number}": 1' for number in range(20_000)) + "}",
        "{" + ",".join(f'"k{number}": 1' for number in range(20_000)) + ', "k19999": 1}',
        '{"' + "x" * 900_000 + '": 1}',
        '{"channels": {' + ",".join(f'"k{number}": {{}}' for number in range(20_000)) + "}}",
    ],
    ids=["digits", "nested", "unknown", "repeated", "long", "channels"],
)
async def test_a_hostile_text_is_told_in_few_words(watched: Watched, text: str) -> None:
    await watched.write(text)

    assert len(watched.rejections.get_nowait()) < 4000
    assert watched.silent


async def test_a_lack_of_descriptors_is_no_fault_of_the_file(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    await watched.watch.look()

    def full(*_: object) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("gateway.config.load.read_regular", full)
    await watched.watch.look()

    assert watched.silent
