import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.background.upkeep.housekeeping import Restorer
from gateway.config.data.instance import InstanceLock, hold_instance, running_address, running_pid
from gateway.config.environment import Environment
from gateway.workspace.template import fill_new_workspace


class Kept:
    """A data folder in use, and what the owner is told."""

    def __init__(self, data: Path, hold: InstanceLock) -> None:
        environment = Environment.read({"SUPACLAW_DATA": str(data)})
        self.data, self.workspace = data, environment.workspace
        self.told: list[str] = []
        fill_new_workspace(self.workspace)
        (data / "keys").mkdir()
        (data / "keys" / "journal").write_bytes(bytes(range(200, 232)))
        (data / "keys" / "local-token").write_text("claw_1")
        (data / "instance").write_text("me")
        hold.record("http://127.0.0.1:1")
        self.restorer = Restorer(environment, hold, self._tell)

    async def _tell(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    with hold_instance(tmp_path / "data") as hold:
        yield Kept(tmp_path / "data", hold)


async def test_what_is_as_it_was_left_is_left(kept: Kept) -> None:
    before = written(kept.data)
    await kept.restorer.look()
    await kept.restorer.look()
    assert written(kept.data) == before
    assert kept.told == []


@pytest.mark.parametrize("how", ["deleted", "emptied", "pipe", "folder", "loop", "blanks"])
async def test_the_record_of_the_process_is_written_again(kept: Kept, how: str) -> None:
    await kept.restorer.look()
    damage(kept.data / "gateway.pid", how)
    await kept.restorer.look()
    assert (running_pid(kept.data), running_address(kept.data)) == (os.getpid(), "http://127.0.0.1:1")
    assert kept.told == []


@pytest.mark.parametrize("how", ["deleted", "emptied", "pipe", "folder", "loop", "blanks"])
@pytest.mark.parametrize("name", ["keys/journal", "keys/local-token", "instance"])
async def test_keys_are_restored_as_they_were(kept: Kept, name: str, how: str) -> None:
    before = (kept.data / name).read_bytes()
    await kept.restorer.look()
    damage(kept.data / name, how)
    await kept.restorer.look()
    assert (kept.data / name).read_bytes() == before


async def test_a_whole_folder_of_keys_is_restored_and_private(kept: Kept) -> None:
    await kept.restorer.look()
    shutil.rmtree(kept.data / "keys")
    await kept.restorer.look()
    assert (kept.data / "keys" / "local-token").read_text() == "claw_1"
    assert (kept.data / "keys").stat().st_mode & 0o777 == 0o700


async def test_a_key_that_somebody_changed_is_theirs(kept: Kept) -> None:
    await kept.restorer.look()
    (kept.data / "keys" / "local-token").write_text("claw_2")
    await kept.restorer.look()
    assert (kept.data / "keys" / "local-token").read_text() == "claw_2"


async def test_what_cannot_be_restored_is_told_once(kept: Kept) -> None:
    await kept.restorer.look()
    shutil.rmtree(kept.data / "keys")
    os.mkfifo(kept.data / "keys")
    await kept.restorer.look()
    await kept.restorer.look()
    [told] = kept.told
    assert told.endswith("move away what is in its place")
    (kept.data / "keys").unlink()
    await kept.restorer.look()
    assert (kept.data / "keys" / "local-token").read_text() == "claw_1"
    assert len(kept.told) == 1


async def test_a_workspace_that_was_deleted_is_made_again_and_told_once(kept: Kept) -> None:
    await kept.restorer.look()
    shutil.rmtree(kept.workspace)
    await kept.restorer.look()
    await kept.restorer.look()
    assert (kept.workspace / "AGENTS.md").exists()
    [told] = kept.told
    assert "supaclaw checkpoints list" in told


async def test_a_workspace_that_the_journal_made_again_is_told_too(kept: Kept) -> None:
    await kept.restorer.look()
    kept.workspace.rename(kept.data / "elsewhere")
    (kept.workspace / "sessions").mkdir(parents=True)
    await kept.restorer.look()
    assert len(kept.told) == 1


async def test_another_gateway_that_took_the_record_is_told(kept: Kept) -> None:
    await kept.restorer.look()
    (kept.data / "gateway.pid").unlink()
    with hold_instance(kept.data):
        await kept.restorer.look()
        assert "a gateway already runs" in kept.told[0]


def written(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in folder.rglob("*")}


def damage(path: Path, how: str) -> None:
    if how in ("emptied", "blanks"):
        path.write_bytes(b" " * 2_000_000 if how == "blanks" else b"")
        return
    path.unlink()
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path)
