"""What a dead server or a power cut leaves in a cluster, and what must not be taken for it."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.store.embedded.cluster import SOCKETS, opened, reach
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.embedded.programs import find_programs

pytestmark = pytest.mark.thorough

PID, LOCK = "postmaster.pid", f"{SOCKETS}/.s.PGSQL.5432.lock"
OWN = str(os.getpid())
PARENT = str(os.getppid())


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A data folder whose cluster is made and stopped."""
    home = Path(tempfile.mkdtemp(prefix="claw"))
    asyncio.run(make(home / "data"))
    yield home / "data"
    shutil.rmtree(home)


async def make(data: Path) -> None:
    server = EmbeddedPostgres(data)
    await server.start()
    await server.stop()


@pytest.fixture
async def data(made: Path) -> AsyncIterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="claw"))
    shutil.copytree(made, home / "data")
    yield home / "data"
    await EmbeddedPostgres(home / "data").stop()
    shutil.rmtree(home)


async def works(data: Path) -> bool:
    connection = await asyncpg.connect(await EmbeddedPostgres(data).start())
    try:
        return await connection.fetchval("select inet_server_addr() is null") is True
    finally:
        await connection.close()


FULL_PID_FILE = "{}\n/old\n1\n5432\nsocket\n\n1 1\nready   \n"
TEARS = [
    b"",
    b"\0" * 100,
    b"\xff\xfe garbage \n\n ready",
    b"999999999999999999999\n",
    b"-5\n",
    b"1\n",
    f"{OWN}\n".encode(),
    *(FULL_PID_FILE.format(pid).encode() for pid in (OWN, PARENT, "1", "99999999")),
]


@pytest.mark.parametrize("torn", TEARS, ids=range(len(TEARS)))
async def test_lock_files_of_a_dead_server_are_removed_whatever_is_in_them(data: Path, torn: bytes) -> None:
    for name in (PID, LOCK, "postmaster.opts", "global/pg_internal.init"):
        (data / "postgres" / name).write_bytes(torn)
    assert await works(data)


@pytest.mark.parametrize("torn", TEARS[:3])
async def test_a_torn_lock_file_of_the_socket_alone_is_removed(data: Path, torn: bytes) -> None:
    (data / "postgres" / LOCK).write_bytes(torn)
    assert await works(data)


@pytest.mark.parametrize("torn", [b"", b"\0" * 4000, None])
async def test_settings_that_a_power_cut_emptied_are_ours_again_and_not_those_of_postgres(
    data: Path, torn: bytes | None
) -> None:
    for name in ("postgresql.conf", "pg_hba.conf"):
        (data / "postgres" / name).unlink()
        if torn is not None:
            (data / "postgres" / name).write_bytes(torn)
    assert await works(data)


async def test_settings_of_the_owner_stay(data: Path) -> None:
    file = data / "postgres" / "postgresql.conf"
    file.write_text(chosen := f"{file.read_text()}\nwork_mem = 9MB\n")
    assert await works(data)
    assert file.read_text() == chosen


async def test_the_lock_file_of_a_server_that_somebody_started_by_hand_is_left(data: Path) -> None:
    await make(data)
    folder = data / "postgres"
    programs = find_programs(folder.stat().st_uid)
    with opened(folder) as handle:
        where = ["-D", reach(folder, handle), "-p", programs.path("postgres"), "-w", "-l", "/dev/null"]
        assert programs.run("pg_ctl", "start", *where, keep=[handle]).returncode == 0
    try:
        assert await works(data)
        pid = (folder / PID).read_text()
        (folder / PID).write_text("")
        (folder / "socket" / ".s.PGSQL.5432").unlink()
        with pytest.raises(OwnerMustAct, match=r"\(pid \d+\).*stop it"):
            await EmbeddedPostgres(data).start()
        assert (folder / PID).read_text() == ""
    finally:
        (folder / PID).write_text(pid)
        with opened(folder) as handle:
            stop = ["-D", reach(folder, handle), "-m", "immediate", "-w"]
            assert programs.run("pg_ctl", "stop", *stop, keep=[handle]).returncode == 0


@pytest.mark.parametrize("held", ["", "\0" * 43, "\xff\xfe"], ids=["empty", "zeros", "garbage"])
@pytest.mark.parametrize("name", ["postgres.superuser", "postgres.supaclaw", "postgres.supaclaw_member"])
async def test_a_damaged_key_is_named(data: Path, name: str, held: str) -> None:
    (data / "keys" / name).write_bytes(held.encode("latin-1"))
    with pytest.raises(OwnerMustAct, match=rf"{name} is damaged: put the old files back"):
        await EmbeddedPostgres(data).start()


async def test_a_server_says_its_folder_by_name(data: Path) -> None:
    (data / "postgres" / "PG_VERSION").write_text("")
    with pytest.raises(OwnerMustAct, match=f'"{data}/postgres" is not a valid data directory'):
        await EmbeddedPostgres(data).start()


async def test_a_set_up_is_on_disk_before_it_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    run = subprocess.run

    def noted(arguments: list[str], **options: object) -> object:
        ran.append((Path(arguments[0]).name, arguments[1]))
        return run(arguments, **options)

    monkeypatch.setattr(subprocess, "run", noted)
    data = Path(tempfile.mkdtemp(prefix="claw"))
    await EmbeddedPostgres(data).start()
    await EmbeddedPostgres(data).stop()
    shutil.rmtree(data)
    assert ("initdb", "--sync-only") in ran
