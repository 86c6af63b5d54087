import os
from pathlib import Path

import pytest

from gateway.domain.errors import DiskFull, OwnerMustAct
from gateway.store.embedded import serverlog
from gateway.store.embedded.serverlog import ServerLog, failure, reason


def test_the_last_complaint_is_the_reason() -> None:
    assert reason("12:00 LOG:  starting\n12:01 FATAL:  no room\n12:02 LOG:  shut down\n") == "FATAL:  no room"


def test_an_answer_to_an_early_client_is_no_complaint() -> None:
    assert reason("FATAL:  no room\nFATAL:  the database system is starting up\n") == "FATAL:  no room"


def test_without_a_complaint_the_last_line_is_the_reason() -> None:
    assert reason("one\ntwo\n\n") == "two"
    assert reason("") == "it gave no reason"


def test_only_what_was_said_since_counts(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "logs" / "postgres.log")
    assert log.size() == 0
    assert log.last_line() == ""
    with log.open() as file:
        file.write(b"FATAL:  long ago\n")
    since = log.size()
    with log.open() as file:
        file.write(b"LOG:  all is well\n")
    assert reason(log.said(since)) == "LOG:  all is well"
    assert log.last_line() == "LOG:  all is well"


def test_it_is_closed_to_others(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "logs" / "postgres.log")
    log.open().close()
    assert log.path.stat().st_mode & 0o777 == 0o600
    assert log.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_log_that_grew_too_large_starts_over_under_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serverlog, "_LARGEST", 3)
    log = ServerLog(tmp_path / "postgres.log")
    with log.open() as file:
        file.write(b"old")
        file.flush()
        log.trim()
        assert log.size() == 3
        file.write(b"er\n")
        file.flush()
        log.trim()
        file.write(b"new\n")
    assert log.path.read_text() == "new\n"
    assert (tmp_path / "postgres.log.1").read_text() == "older\n"


@pytest.mark.parametrize(
    "said",
    [
        'FATAL:  could not write lock file "postmaster.pid": No space left on device',
        "PANIC:  could not write to file: Disk quota exceeded\nPANIC:  cannot abort transaction 1",
        'FATAL:  could not extend file "base/1/2": wrote only 4096 of 8192 bytes at block 0',
    ],
)
def test_a_full_disk_is_told_from_other_failures(tmp_path: Path, said: str) -> None:
    assert isinstance(failure("It does not start", said, tmp_path), DiskFull)
    assert isinstance(failure("It does not start", "FATAL:  nonsense", tmp_path), OwnerMustAct)


def test_a_pipe_in_its_place_holds_up_neither_the_server_nor_us(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "postgres.log")
    os.mkfifo(log.path)
    assert log.last_line() == ""
    log.trim()
    with log.open() as file:
        file.write(b"LOG:  all is well\n")
    assert log.last_line() == "LOG:  all is well"


def test_a_log_of_holes_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serverlog, "_MOST", 10_000)
    log = ServerLog(tmp_path / "postgres.log")
    log.open().close()
    os.truncate(log.path, 2**40)
    log.trim()
    assert log.size() == 0
    assert (tmp_path / "postgres.log.1").stat().st_size == 10_000
