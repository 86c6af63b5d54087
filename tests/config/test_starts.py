import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.config.data.instance import MAX_RECORDS, StartHistory, record_notice, record_start, record_stop
from gateway.config.machine import SystemClock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)


class Hands(SystemClock):
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = NOON

    def now(self) -> datetime:
        return self.at

    def pass_by(self, **time: float) -> "Hands":
        self.at += timedelta(**time)
        return self


@pytest.fixture
def clock() -> Hands:
    return Hands()


def crash(data: Path, clock: Hands, times: int) -> StartHistory:
    """So many starts, a minute apart, none of them stopped; what the last one was told."""
    starts = StartHistory()
    for _ in range(times):
        starts = record_start(data, clock.pass_by(minutes=1))
    return starts


def test_the_first_start_knows_of_nothing(tmp_path: Path, clock: Hands) -> None:
    assert record_start(tmp_path, clock) == StartHistory()
    assert (tmp_path / "starts").stat().st_mode & 0o777 == 0o600


def test_a_run_that_was_stopped_is_no_crash(tmp_path: Path, clock: Hands) -> None:
    for _ in range(10):
        assert record_start(tmp_path, clock) == StartHistory()
        record_stop(tmp_path)


def test_runs_that_were_not_stopped_end_when_the_next_begins(tmp_path: Path, clock: Hands) -> None:
    record_start(tmp_path, clock)
    starts = record_start(tmp_path, clock.pass_by(days=7))
    assert starts == StartHistory((NOON + timedelta(days=7),), 1)
    assert starts.ended(clock.now(), DAY) == 1
    clock.pass_by(days=1, seconds=1)
    assert starts.ended(clock.now(), DAY) == 0


def test_five_ends_in_ten_minutes_are_a_crash_loop(tmp_path: Path, clock: Hands) -> None:
    assert crash(tmp_path, clock, 5).looping(clock.now()) == 0
    starts = crash(tmp_path, clock, 1)
    assert starts.looping(clock.now()) == 5
    told = starts.notice(clock.now())
    assert told is not None
    assert told.startswith("I crashed or was killed 5 times within 10 minutes")
    clock.pass_by(minutes=7)
    assert starts.looping(clock.now()) == 0


def test_a_clean_stop_ends_the_row(tmp_path: Path, clock: Hands) -> None:
    crash(tmp_path, clock, 6)
    record_stop(tmp_path)
    starts = crash(tmp_path, clock, 2)
    assert (starts.consecutive, starts.looping(clock.now())) == (1, 0)
    assert starts.ended(clock.now(), DAY) == 6


def test_a_crash_loop_is_told_once_an_hour_however_often_it_restarts(tmp_path: Path, clock: Hands) -> None:
    crash(tmp_path, clock, 6)
    record_notice(tmp_path, clock)
    assert crash(tmp_path, clock, 1).notice(clock.now()) is None
    clock.pass_by(minutes=50)
    assert crash(tmp_path, clock, 5).notice(clock.now()) is None
    assert crash(tmp_path, clock, 5).notice(clock.now()) is not None


def test_a_clock_that_was_set_back_silences_nothing_for_ever(tmp_path: Path, clock: Hands) -> None:
    crash(tmp_path, clock, 6)
    record_notice(tmp_path, clock)
    clock.pass_by(days=-30)
    assert crash(tmp_path, clock, 1).looping(clock.now()) == 0
    assert crash(tmp_path, clock, 5).notice(clock.now()) is not None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"starts": 3}', b'{"starts": [{"at": "noon"}]}', b"\xff\x00"])
def test_a_damaged_record_begins_anew(tmp_path: Path, clock: Hands, damage: bytes) -> None:
    crash(tmp_path, clock, 3)
    (tmp_path / "starts").write_bytes(damage)
    record_stop(tmp_path)
    assert record_start(tmp_path, clock) == StartHistory()
    assert crash(tmp_path, clock, 1).consecutive == 1


def test_a_record_that_cannot_be_read_or_written_stops_nothing(tmp_path: Path, clock: Hands) -> None:
    (tmp_path / "file").touch()
    assert crash(tmp_path / "file", clock, 2) == StartHistory()
    record_stop(tmp_path / "file")
    record_notice(tmp_path / "file", clock)


@pytest.mark.parametrize("kind", [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)])
def test_what_is_in_the_place_of_the_record_is_moved_aside(
    tmp_path: Path, clock: Hands, kind: Callable[[Path], None]
) -> None:
    kind(tmp_path / "starts")
    crash(tmp_path, clock, 2)
    assert crash(tmp_path, clock, 1).consecutive == 2
    assert os.path.lexists(tmp_path / "starts.aside")


def test_the_record_stays_small(tmp_path: Path, clock: Hands) -> None:
    starts = crash(tmp_path, clock, MAX_RECORDS + 20)
    assert len(starts.crashes) == MAX_RECORDS
    assert (tmp_path / "starts").stat().st_size < 10_000
