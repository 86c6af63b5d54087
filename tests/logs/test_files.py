import io
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from itertools import cycle
from pathlib import Path
from uuid import UUID

import pytest

from gateway.logs import prune
from gateway.logs.files import (
    LogFiles,
    Trail,
    at_least,
    event_of,
    follow_lines,
    gateway_trail,
    line_renderer,
    session_trail,
    session_trails,
)

DAY, NEXT = date(2026, 1, 1), date(2026, 1, 2)
IDS = [str(UUID(int=number)) for number in range(1, 5)]


def of(logs: Path, session: str) -> Trail:
    trail = session_trail(logs, session)
    assert trail is not None
    return trail


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


def test_each_day_has_its_file_and_the_newest_is_found_by_one_name(tmp_path: Path) -> None:
    days = iter([DAY, DAY, NEXT])
    files = LogFiles(lambda: next(days))

    for text in ("one", "two", "three"):
        files.write(gateway_trail(tmp_path), text)
    files.close()

    assert (tmp_path / "gateway-2026-01-01.log").read_text() == "one\ntwo\n"
    assert (tmp_path / "gateway-2026-01-02.log").read_text() == "three\n"
    assert (tmp_path / "gateway.log").read_text() == "three\n"
    assert gateway_trail(tmp_path).days() == [DAY, NEXT]


def test_a_sessions_lines_lie_in_a_folder_of_its_own_for_the_owners_eyes_only(tmp_path: Path) -> None:
    logs, files = tmp_path / "logs", LogFiles(lambda: DAY)

    files.write(of(logs, IDS[0]), "one")
    files.write(of(logs, IDS[1]), "other")
    files.close()

    file = logs / "sessions" / IDS[0] / "2026-01-01.log"
    assert file.read_text() == "one\n"
    assert session_trails(logs) == [of(logs, IDS[0]), of(logs, IDS[1])]
    assert [path.stat().st_mode & 0o777 for path in (logs, file.parent, file)] == [0o700, 0o700, 0o600]


def test_only_the_files_written_to_last_stay_open_and_none_of_yesterday(tmp_path: Path) -> None:
    today = [DAY]

    def handles() -> list[str]:
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        opened = [os.readlink(link) for link in links if os.path.lexists(link)]
        return sorted(Path(path).parent.name for path in opened if path.startswith(str(tmp_path)))

    files = LogFiles(lambda: today[0], most_open=2)
    for number in (0, 1, 0, 2):
        files.write(of(tmp_path, IDS[number]), "x")
    assert handles() == [IDS[0], IDS[2]]

    today[0] = NEXT
    files.write(of(tmp_path, IDS[3]), "x")
    assert handles() == [IDS[3]]
    files.close()
    assert handles() == []


def test_many_sessions_in_turn_lose_no_line(tmp_path: Path) -> None:
    files = LogFiles(lambda: DAY, most_open=2)
    turns = cycle(IDS)

    for number in range(40):
        files.write(of(tmp_path, next(turns)), str(number))
    files.close()

    logs = [of(tmp_path, id).path(DAY).read_text().split() for id in IDS]
    assert logs == [[str(number) for number in range(start, 40, 4)] for start in range(4)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_line_that_a_full_disk_tore_is_ended_before_the_next_one(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 56 * 1024)
    files, trail = LogFiles(lambda: DAY), of(small_disk, IDS[0])
    lines = [f"{number:03} {'y' * 1000}" for number in range(100)]
    with pytest.raises(OSError, match="No space"):
        deque((files.write(trail, line) for line in lines), maxlen=0)
    filler.unlink()
    files.write(trail, "after")
    files.close()

    said = trail.path(DAY).read_text().splitlines()
    assert said[-1] == "after"
    assert said[0] == lines[0]
    assert 2 < len(said) < 12


def test_a_line_torn_before_a_restart_is_ended_too(tmp_path: Path) -> None:
    (tmp_path / "gateway-2026-01-01.log").write_text('{"event": "to')
    files = LogFiles(lambda: DAY)

    files.write(gateway_trail(tmp_path), "{}")
    files.close()

    assert (tmp_path / "gateway-2026-01-01.log").read_text() == '{"event": "to\n{}\n'


@pytest.mark.parametrize("text", ["", "../x", UUID(int=10**38).hex, f"urn:uuid:{IDS[0]}", IDS[0] + " ", 7, None])
def test_only_an_id_written_as_we_write_it_can_become_a_path(tmp_path: Path, text: object) -> None:
    assert session_trail(tmp_path, text) is None


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_without_a_limit_everything_is_kept(tmp_path: Path) -> None:
    put(tmp_path / "gateway-1999-01-01.log")

    assert prune(tmp_path, None, date(2026, 3, 10)) == 0
    assert names(tmp_path) == ["gateway-1999-01-01.log"]


@pytest.mark.parametrize(
    ("keep", "oldest"),
    [
        (timedelta(hours=1), "gateway-2026-03-09.log"),
        (timedelta(days=1), "gateway-2026-03-09.log"),
        (timedelta(days=2), "gateway-2026-03-08.log"),
        (timedelta(days=90), "gateway-2026-03-05.log"),
    ],
)
def test_nothing_younger_than_the_limit_goes(tmp_path: Path, keep: timedelta, oldest: str) -> None:
    for day in range(5, 11):
        put(tmp_path / f"gateway-2026-03-{day:02}.log")

    prune(tmp_path, keep, date(2026, 3, 10))

    assert names(tmp_path)[0] == oldest
    assert names(tmp_path)[-1] == "gateway-2026-03-10.log"


def test_old_files_of_sessions_go_and_folders_left_empty_with_them(tmp_path: Path) -> None:
    old = put(tmp_path / "sessions" / IDS[0] / "2026-01-01.log")
    young = put(tmp_path / "sessions" / IDS[1] / "2026-03-09.log")
    put(young.with_name("2026-01-01.log"))

    assert prune(tmp_path, timedelta(days=7), date(2026, 3, 10)) == 2
    assert not old.parent.exists()
    assert names(young.parent) == ["2026-03-09.log"]


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    elsewhere = put(tmp_path / "elsewhere" / "2026-01-01.log")
    logs = tmp_path / "logs"
    theirs = [
        put(logs / name)
        for name in (
            "postgres.log",
            "gateway-2026-01-01.log.gz",
            "gateway-2026-13-01.log",
            "2026-01-01.log",
            "sessions/2026-01-01.log",
            "sessions/notes/2026-01-01.log",
            f"sessions/{IDS[0]}/notes.txt",
            f"sessions/{IDS[0]}/gateway-2026-01-01.log",
        )
    ]
    (logs / "sessions" / IDS[1]).symlink_to(elsewhere.parent)
    (logs / "gateway-2026-01-03.log").mkdir()

    assert prune(logs, timedelta(days=1), date(2026, 3, 10)) == 0
    assert all(path.exists() for path in (elsewhere, *theirs))


def test_a_folder_that_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    assert prune(tmp_path / "none", timedelta(days=1), date(2026, 3, 10)) == 0


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


@pytest.mark.parametrize("damage", [Path.unlink, moved, fifo, folder, loop])
def test_a_log_that_somebody_deletes_or_replaces_begins_anew(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    files = LogFiles(lambda: DAY)
    files.write(gateway_trail(tmp_path), "one")

    damage(tmp_path / "gateway-2026-01-01.log")
    files.write(gateway_trail(tmp_path), "two")
    files.close()

    assert (tmp_path / "gateway-2026-01-01.log").read_text() == "two\n"


def test_logs_whose_folder_was_deleted_begin_anew(tmp_path: Path) -> None:
    files = LogFiles(lambda: DAY)
    files.write(of(tmp_path / "logs", IDS[0]), "one")

    shutil.rmtree(tmp_path / "logs")
    files.write(of(tmp_path / "logs", IDS[0]), "two")
    files.close()

    assert of(tmp_path / "logs", IDS[0]).path(DAY).read_text() == "two\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("key", ["event", "logger", "fact", "level", "timestamp", "exception"])
def test_nothing_in_a_line_can_move_the_cursor(key: str) -> None:
    event = {"timestamp": "t", "level": "info", "event": "x"} | {key: "\x1b[2Jgone\x9b1m\r\u202e"}

    assert all(char.isprintable() or char == "\n" for char in line_renderer(io.StringIO())(event))


def test_a_fact_cannot_forge_a_line_but_a_traceback_has_its_own() -> None:
    line = line_renderer(io.StringIO())({"event": "a\nb", "fact": "c\nd", "exception": "e\nf"})

    assert line.splitlines() == ["a\\nb                           fact=c\\nd", "e", "f"]


def test_only_a_terminal_that_wants_colours_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"level": "info", "event": "x"}
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" in line_renderer(Terminal())(event)
    assert "\x1b" not in line_renderer(io.StringIO())(event)

    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in line_renderer(Terminal())(event)


def add(folder: Path, day: date, text: str) -> None:
    with (folder / f"gateway-{day}.log").open("a") as file:
        file.write(text)


def test_each_look_gives_what_was_added_since_the_last(tmp_path: Path) -> None:
    look = follow_lines(gateway_trail(tmp_path), DAY, lambda: DAY)

    assert next(look) == []
    add(tmp_path, DAY, "one\ntwo\n")
    assert next(look) == ["one", "two"]
    add(tmp_path, DAY, "thr")
    assert next(look) == []
    add(tmp_path, DAY, "ee\nfour\n")
    assert next(look) == ["three", "four"]


def test_over_midnight_the_end_of_the_old_day_comes_before_the_new_one(tmp_path: Path) -> None:
    today = [DAY]
    look = follow_lines(gateway_trail(tmp_path), DAY, lambda: today[0])
    add(tmp_path, DAY, "one\n")
    assert next(look) == ["one"]

    add(tmp_path, DAY, "last\n")
    add(tmp_path, NEXT, "first\n")
    today[0] = NEXT

    assert next(look) + next(look) == ["last", "first"]
    add(tmp_path, NEXT, "second\n")
    assert next(look) == ["second"]


@pytest.mark.parametrize("line", ["", '{"event": "to', "7", "[]"])
def test_a_torn_line_is_only_its_text_and_never_left_out(line: str) -> None:
    assert event_of(line) == {"event": line}
    assert at_least(event_of(line), "critical")


def test_levels_are_ordered_and_an_unknown_one_is_never_left_out() -> None:
    shown = [
        name
        for name in ("debug", "info", "warning", "error", "critical", "odd")
        if at_least({"level": name}, "warning")
    ]

    assert shown == ["warning", "error", "critical", "odd"]
    assert at_least({}, "critical")
