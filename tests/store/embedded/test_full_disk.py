"""The embedded server on a disk without room: told as such, nothing half made, and it goes on when there is room."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from gateway.domain.errors import DiskFull
from gateway.store.embedded.cluster import read_passwords
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.embedded.postmaster import Postmaster
from gateway.store.embedded.programs import ServerLog

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


@contextmanager
def disk(*options: str) -> Iterator[Path]:
    at = Path(tempfile.mkdtemp(prefix="claw"))
    mount = ["mount", "-t", "tmpfs", "-o", ",".join(("mode=755", *options)), "none", str(at)]
    if (mounted := subprocess.run(mount, check=False, capture_output=True, text=True)).returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)
        shutil.rmtree(at)


def resize(at: Path, *options: str) -> None:
    subprocess.run(["mount", "-o", ",".join(("remount", *options)), str(at)], check=True)


def fill(folder: Path) -> Path:
    with open(folder / "filler", "wb", buffering=0) as out:
        for size in (2**20, 4096):
            try:
                while True:
                    out.write(bytes(size))
            except OSError:
                continue
    return folder / "filler"


@pytest.fixture
async def data() -> AsyncIterator[Path]:
    with disk("size=160m") as at:
        yield at / "data"
        await EmbeddedPostgres(at / "data").stop()


async def works(data: Path) -> bool:
    connection = await asyncpg.connect(await EmbeddedPostgres(data).start())
    try:
        return await connection.fetchval("select true") is True
    finally:
        await connection.close()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "small", [("size=8k",), ("size=1m",), ("size=20m",), ("size=40m",), ("nr_inodes=5",), ("nr_inodes=500",)]
)
async def test_a_set_up_without_room_leaves_nothing_half_made_and_works_later(small: tuple[str, ...]) -> None:
    with disk("size=160m", *small) as at:
        server = EmbeddedPostgres(at / "data")
        for _ in range(2):
            with pytest.raises(DiskFull):
                await server.start()
            assert not (at / "data" / "postgres").exists()
            assert not (at / "data" / "postgres.new").exists()
            if (at / "data" / "keys").exists():
                assert all(file.stat().st_size == 43 for file in (at / "data" / "keys").iterdir())
        resize(at, "size=160m", "nr_inodes=9999")
        assert await works(at / "data")
        await server.stop()


async def test_passwords_are_made_whole_or_not_at_all() -> None:
    with disk("size=8k") as at:  # two fit, the third does not
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                made_passwords(at / "keys")
            kept = {file.name: file.read_text() for file in (at / "keys").iterdir()}
            assert all(len(password) == 43 for password in kept.values())
        resize(at, "size=1m")
        assert set(kept.values()) <= made_passwords(at / "keys")


def made_passwords(folder: Path) -> set[str]:
    return set(read_passwords(folder, make=True).values())


@pytest.mark.parametrize("stopped", ["killed", "in order"])
async def test_a_server_on_a_full_disk_says_so_and_starts_when_there_is_room(data: Path, stopped: str) -> None:
    server = EmbeddedPostgres(data)
    await server.start()
    if stopped == "in order":
        await server.stop()
    for _ in range(3):
        kill(data / "postgres")
        filler = fill(data)
        with suppress(DiskFull):  # what a recovery clears may be room enough
            await server.start()
    filler.unlink()
    assert await works(data)


def kill(folder: Path) -> None:
    """Every process of the server."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").samefile(folder):
                os.kill(int(process.name), signal.SIGKILL)
    while Postmaster(folder, ServerLog(folder)).is_alive:
        os.sched_yield()


def test_a_log_too_large_is_cut_also_without_room_for_its_copy(data: Path) -> None:
    data.mkdir()
    log = ServerLog(data / "postgres.log")
    log.path.write_bytes(bytes(9_000_000))
    fill(data)
    log.trim()
    assert log.size() == 0
