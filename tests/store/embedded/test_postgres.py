"""The embedded server, for real: every test has one of its own."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from gateway.domain.errors import DatabaseDown, OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.store.connection.dsn import as_user, parse_dsn
from gateway.store.connection.pool import Database
from gateway.store.embedded import postgres as postgres_module
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.embedded.postmaster import Postmaster
from gateway.store.embedded.programs import ServerLog
from gateway.store.migrate import migrate

ROOT = Path(__file__).parents[3]
START_AND_WAIT = """
import asyncio, sys
from pathlib import Path
from gateway.store.embedded.postgres import EmbeddedPostgres

async def main():
    print(await EmbeddedPostgres(Path(sys.argv[1])).start(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A data folder whose cluster is made and stopped."""
    home = Path(tempfile.mkdtemp(prefix="claw"))
    asyncio.run(make(home / "data"))
    yield home / "data"
    shutil.rmtree(home)


@pytest.fixture
async def home() -> AsyncIterator[Path]:
    """A place for `data`; the server there is stopped afterwards, whoever started it."""
    home = Path(tempfile.mkdtemp(prefix="claw"))
    yield home
    await EmbeddedPostgres(home / "data").stop()
    shutil.rmtree(home)


@pytest.fixture
def nothing(home: Path) -> Path:
    """A data folder that does not exist yet."""
    return home / "data"


@pytest.fixture
def data(home: Path, made: Path) -> Path:
    """A data folder with a cluster that is not running."""
    return Path(shutil.copytree(made, home / "data"))


@pytest.fixture
def server(data: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres(data)


async def make(data: Path) -> None:
    server = EmbeddedPostgres(data)
    await server.start()
    await server.stop()


async def ask(dsn: str, question: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def born(dsn: str) -> object:
    return await ask(dsn, "select pg_postmaster_start_time()")


async def born_after(dsn: str, earlier: object) -> object:
    async with asyncio.timeout(30):
        while True:
            try:
                if (found := await born(dsn)) != earlier:
                    return found
            except (OSError, asyncpg.PostgresError):
                pass
            await asyncio.sleep(0.02)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


def pid_of(data: Path) -> int:
    return int((data / "postgres" / "postmaster.pid").read_text().split()[0])


def launch_in_another_process(data: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT, str(data)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def sleeper(uid: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["/bin/sleep", "60"], user=uid if os.geteuid() == 0 else None)


async def test_a_first_start_makes_a_database_with_vectors_that_a_plain_role_owns(nothing: Path) -> None:
    server = EmbeddedPostgres(nothing)
    dsn = await server.start()
    assert server.is_running
    assert await ask(dsn, "select current_user::text") == "supaclaw"
    assert await ask(dsn, "select '[1,2]'::vector::text") == "[1,2]"
    assert (
        await ask(dsn, "select rolsuper or rolcreaterole or rolcreatedb from pg_roles where rolname = current_user")
        is False
    )
    assert await ask(dsn, "select current_setting('data_checksums')") == "on"
    assert await ask(dsn, "select current_setting('fsync') || current_setting('synchronous_commit')") == "onon"
    assert await ask(dsn, "select current_setting('server_encoding')") == "UTF8"


async def test_nobody_gets_in_without_the_password_or_into_other_databases(
    server: EmbeddedPostgres, data: Path
) -> None:
    dsn = await server.start()
    password = (data / "keys" / "postgres.supaclaw").read_text()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(dsn.replace(password, "guess"))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(dsn.replace("supaclaw:", "postgres:"))
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await asyncpg.connect(dsn.replace("/supaclaw?", "/postgres?"))
    assert await ask(dsn, "select current_setting('listen_addresses')") == ""


async def test_every_folder_and_key_is_closed_to_others(nothing: Path) -> None:
    data = nothing
    await EmbeddedPostgres(data).start()
    folders = [data, data / "keys", data / "logs", data / "postgres", data / "postgres" / "socket"]
    assert [oct(folder.stat().st_mode & 0o777) for folder in folders] == ["0o700"] * 5
    assert {oct(key.stat().st_mode & 0o777) for key in (data / "keys").iterdir()} == {"0o600"}
    assert oct((data / "postgres" / "socket" / ".s.PGSQL.5432").stat().st_mode & 0o777) == "0o700"
    assert sorted(os.listdir(data)) == ["keys", "logs", "postgres"]


async def test_a_second_start_finds_the_running_server(server: EmbeddedPostgres, data: Path) -> None:
    dsn = await server.start()
    first = await born(dsn)
    assert await EmbeddedPostgres(data).start() == dsn
    assert await born(dsn) == first


async def test_starts_at_the_same_time_meet_in_one_server(nothing: Path) -> None:
    dsns = await asyncio.gather(*(EmbeddedPostgres(nothing).start() for _ in range(3)))
    assert len(set(dsns)) == 1
    assert len({await born(dsn) for dsn in dsns}) == 1


async def test_the_server_outlives_a_killed_gateway(server: EmbeddedPostgres, data: Path) -> None:
    with launch_in_another_process(data) as gateway:
        assert gateway.stdout is not None
        dsn = gateway.stdout.readline().strip()
        first = await born(dsn)
        gateway.kill()
    assert await born(dsn) == first
    assert await server.start() == dsn
    assert await born(dsn) == first


async def test_a_gateway_killed_while_it_sets_up_leaves_nothing_half_made(nothing: Path) -> None:
    with launch_in_another_process(nothing) as gateway:
        await until((nothing / "postgres.new" / "data" / "base").exists)
        gateway.kill()
    assert not (nothing / "postgres").exists()
    assert await ask(await EmbeddedPostgres(nothing).start(), "select 1") == 1
    assert not (nothing / "postgres.new").exists()


async def test_what_was_committed_survives_a_killed_server(server: EmbeddedPostgres, data: Path) -> None:
    dsn = await server.start()
    await ask(dsn, "create table kept as select 42 as answer")
    os.kill(pid_of(data), signal.SIGKILL)
    await server.start()
    assert await ask(dsn, "select answer from kept") == 42


async def test_a_supervised_server_comes_back_each_time_it_dies(
    server: EmbeddedPostgres, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "_WATCH", 0.01)
    monkeypatch.setattr(postgres_module, "_FIRST_DELAY", 0.01)
    monkeypatch.setattr(postgres_module, "_STEADY_AFTER", 0.0)
    dsn = await server.start()
    watch = asyncio.create_task(server.supervise())
    with capture_logs() as logs:
        first = await born(dsn)
        os.kill(pid_of(data), signal.SIGKILL)
        second = await born_after(dsn, first)
        await until(lambda: len(logs) == 2)
        os.kill(pid_of(data), signal.SIGKILL)
        await born_after(dsn, second)
        await until(lambda: len(logs) == 4)
    watch.cancel()
    assert [entry["event"] for entry in logs] == ["postgres.died", "postgres.started"] * 2


async def test_supervision_says_why_it_cannot_start_again_and_goes_on(
    server: EmbeddedPostgres, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "_WATCH", 0.01)
    monkeypatch.setattr(postgres_module, "_FIRST_DELAY", 0.01)
    dsn = await server.start()
    first = await born(dsn)
    await server.stop()
    settings = (data / "postgres" / "postgresql.conf").read_text()
    (data / "postgres" / "postgresql.conf").write_text("nonsense = 1\n")
    with capture_logs() as logs:
        watch = asyncio.create_task(server.supervise())
        await until(lambda: any(entry["event"] == "postgres.not_started" for entry in logs))
    (data / "postgres" / "postgresql.conf").write_text(settings)
    assert await born_after(dsn, first) != first
    watch.cancel()
    assert any("contains errors" in entry.get("error", "") for entry in logs)


async def test_supervision_of_a_server_whose_folder_is_gone_says_what_to_do(
    server: EmbeddedPostgres, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "_WATCH", 0.01)
    await server.start()
    await server.stop()
    shutil.rmtree(data / "postgres")
    with capture_logs() as logs:
        watch = asyncio.create_task(server.supervise())
        await until(lambda: any(entry["event"] == "postgres.not_started" for entry in logs))
    watch.cancel()
    assert any("postgres is gone: stop the gateway and restore a backup" in entry.get("error", "") for entry in logs)


async def test_a_process_that_has_the_old_servers_pid_is_not_mistaken_for_it(
    server: EmbeddedPostgres, data: Path
) -> None:
    await server.start()
    await server.stop()
    owner = (data / "postgres").stat().st_uid
    with sleeper(owner) as stranger:
        (data / "postgres" / "postmaster.pid").write_text(f"{stranger.pid}\n/old\n1\n5432\nsocket\n\n1 1\nready   \n")
        assert not server.is_running
        dsn = await server.start()
        assert stranger.poll() is None
        stranger.kill()
    assert await ask(dsn, "select 1") == 1


async def test_deleting_the_data_folder_gives_a_fresh_database(server: EmbeddedPostgres, data: Path) -> None:
    old = await server.start()
    await ask(old, "create table gone()")
    await server.stop()
    shutil.rmtree(data)
    new = await server.start()
    assert new != old
    assert await ask(new, "select to_regclass('gone')") is None


async def test_the_servers_own_words_tell_why_it_does_not_start(server: EmbeddedPostgres, data: Path) -> None:
    await server.start()
    await server.stop()
    (data / "postgres" / "PG_VERSION").write_text("17\n")
    with pytest.raises(
        OwnerMustAct, match=r"Postgres does not start: FATAL:  database files are incompatible.*postgres\.log"
    ):
        await server.start()


async def test_keys_of_another_cluster_are_named_as_the_fault(server: EmbeddedPostgres, data: Path) -> None:
    await server.start()
    (data / "keys" / "postgres.supaclaw").write_text("of another cluster")
    with pytest.raises(OwnerMustAct, match="keys does not fit"):
        await server.start()


async def test_a_server_without_a_free_connection_counts_as_started(server: EmbeddedPostgres) -> None:
    dsn = await server.start()
    await ask(server.superuser_dsn(), "alter role supaclaw connection limit 0")
    assert await server.start() == dsn


async def test_a_data_folder_that_cannot_be_made_is_the_owners_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OwnerMustAct, match="cannot be used"):
        await EmbeddedPostgres(tmp_path / "file" / "data").start()


async def test_a_cluster_of_another_user_is_left_alone(
    server: EmbeddedPostgres, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.start()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(OwnerMustAct, match="belongs to user id"):
            await server.start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can lose its ownership")
async def test_a_cluster_that_a_restored_backup_left_to_root_is_handed_back(
    server: EmbeddedPostgres, data: Path
) -> None:
    await server.start()
    await server.stop()
    for path in [data / "postgres", *(data / "postgres").rglob("*")]:
        os.chown(path, 0, 0, follow_symlinks=False)
    assert await ask(await server.start(), "select 1") == 1
    assert (data / "postgres" / "base").stat().st_uid != 0


async def test_a_folder_too_deep_for_a_socket_works_as_well(nothing: Path) -> None:
    server = EmbeddedPostgres(nothing / ("deep" * 30))
    try:
        assert await ask(await server.start(), "select 1") == 1
    finally:
        await server.stop()


async def test_a_slow_recovery_is_waited_for_and_reported(
    server: EmbeddedPostgres, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "_SLOW", 0.0)
    with capture_logs() as logs:
        await server.start()
    assert "postgres.starting" in {entry["event"] for entry in logs}


async def test_stopping_cuts_connections_and_stopping_again_does_nothing(server: EmbeddedPostgres) -> None:
    connection = await asyncpg.connect(await server.start())
    await server.stop()
    assert not server.is_running
    await server.stop()
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await connection.fetchval("select 1")


async def test_a_server_that_will_not_end_is_reported(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.start()
    with monkeypatch.context() as patched:
        patched.setattr(postgres_module, "_STOP_WITHIN", 0.0)
        patched.setattr(Postmaster, "ask_to_stop", lambda *_: "it is busy")
        with pytest.raises(DatabaseDown, match="does not stop: it is busy"):
            await server.stop()


TAKES_IT_ON = "select set_config('role', 'supaclaw_member', false)"


NO_ROLE = ("drop owned by supaclaw_member", "drop role supaclaw_member")
NO_LOGIN = ("alter role supaclaw_member nologin password null",)


@pytest.mark.parametrize("lacks", [NO_ROLE, NO_LOGIN])
async def test_a_cluster_of_an_older_version_gets_the_role_of_members(data: Path, lacks: tuple[str, ...]) -> None:
    server = EmbeddedPostgres(data)
    dsn = await server.start()
    for statement in lacks:
        await ask(server.superuser_dsn(), statement)
    await asyncio.gather(*(EmbeddedPostgres(data).start() for _ in range(4)))
    assert await ask(dsn, TAKES_IT_ON) == "supaclaw_member"
    assert await ask(dsn, "select rolsuper from pg_roles where rolname = 'supaclaw_member'") is False
    assert await ask(as_user(parse_dsn(dsn), "supaclaw_member", server.member_password).url, "select 1") == 1


async def test_on_a_server_of_others_the_role_is_made_by_who_may_and_asked_for_by_who_may_not(
    server: EmbeddedPostgres,
) -> None:
    dsn, administrator = await server.start(), server.superuser_dsn("postgres")
    for statement in NO_ROLE:
        await ask(server.superuser_dsn(), statement)
    for name, may in (("plain", "nocreaterole"), ("able", "createrole")):
        await ask(administrator, f"create role {name} login password 'x' {may}")
        await ask(administrator, f"create database {name} owner {name}")
    plain, able = (f"postgresql://{n}:x@/{n}?{dsn.partition('?')[2]}" for n in ("plain", "able"))
    async with await Database.connect(plain) as database:
        with pytest.raises(OwnerMustAct) as told:
            await migrate(database)
        [_, statements] = str(told.value).split("let an administrator run once: ")
        await migrated(able, logs_in=True)
        for statement in statements.split(";")[1:-1]:
            await ask(administrator, statement)
        await migrated(plain, logs_in=False)
    await ask(administrator, "alter role supaclaw_member login password 'chosen'")
    await migrated(f"{plain}&member_password=chosen", logs_in=True)


async def migrated(dsn: str, *, logs_in: bool) -> None:
    async with await Database.connect(dsn) as database:
        await migrate(database)
        async with database.bound(PrincipalId(uuid4())).connection() as conn:
            assert await conn.fetchval("select current_user::text") == "supaclaw_member"
            assert await conn.fetch("select * from files") == []
        assert await database.members_log_in() is logs_in


def gone(socket: Path) -> None:
    socket.unlink()


def folder_gone(socket: Path) -> None:
    shutil.rmtree(socket.parent)


def piped(socket: Path) -> None:
    socket.unlink()
    os.mkfifo(socket)


def looped(socket: Path) -> None:
    shutil.rmtree(socket.parent)
    socket.parent.symlink_to(socket.parent)


@pytest.mark.parametrize("damage", [gone, folder_gone, piped, looped])
async def test_a_server_whose_socket_was_deleted_is_started_again(
    server: EmbeddedPostgres, data: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "_WATCH", 0.02)
    dsn = await server.start()
    before = await born(dsn)
    watch = asyncio.create_task(server.supervise())
    with capture_logs() as logs:
        damage(data / "postgres" / "socket" / ".s.PGSQL.5432")
        await born_after(dsn, before)
    watch.cancel()
    assert [log["event"] for log in logs if "socket" in log["event"]] == ["postgres.socket_gone"]


@pytest.mark.parametrize("damage", [gone, folder_gone])
async def test_a_start_finds_a_server_whose_socket_was_deleted(
    server: EmbeddedPostgres, data: Path, damage: Callable[[Path], None]
) -> None:
    before = await born(await server.start())
    damage(data / "postgres" / "socket" / ".s.PGSQL.5432")
    async with asyncio.timeout(30):
        assert await born(await EmbeddedPostgres(data).start()) != before


def blank(path: Path) -> None:
    path.write_bytes(b" " * 2_000_000)


@pytest.mark.parametrize("socket_too", [True, False])
async def test_a_server_whose_pid_file_was_replaced_is_found_again(
    server: EmbeddedPostgres, data: Path, socket_too: bool
) -> None:
    before = await born(await server.start())
    blank(data / "postgres" / "postmaster.pid")
    if socket_too:
        gone(data / "postgres" / "socket" / ".s.PGSQL.5432")
    async with asyncio.timeout(30):
        assert (await born(await EmbeddedPostgres(data).start()) != before) is socket_too
        await server.stop()
    assert not server.is_running


@pytest.mark.parametrize("kind", [os.mkfifo, os.mkdir, Path.touch, blank])
@pytest.mark.parametrize("name", ["postmaster.pid", "socket/.s.PGSQL.5432", "socket/.s.PGSQL.5432.lock"])
async def test_what_lies_in_the_place_of_the_servers_files_stops_no_start(
    server: EmbeddedPostgres, data: Path, name: str, kind: Callable[[Path], None]
) -> None:
    kind(data / "postgres" / name)
    async with asyncio.timeout(30):
        assert await ask(await server.start(), "select 1") == 1


def test_a_pipe_as_pid_file_is_moved_away_before_the_server_reads_it(data: Path) -> None:
    os.mkfifo(data / "postgres" / "postmaster.pid")
    assert not Postmaster(data / "postgres", ServerLog(data / "logs" / "postgres.log")).check_cut_off()
    assert not os.path.lexists(data / "postgres" / "postmaster.pid")


def test_a_server_that_is_about_to_write_its_pid_file_is_not_taken_for_one_without_a_socket(data: Path) -> None:
    postmaster, made = Postmaster(data / "postgres", ServerLog(data / "postgres.log")), data / "postgres/postmaster.pid"
    made.touch()
    assert not postmaster.check_cut_off()
    os.utime(made, (0, 0))
    assert postmaster.check_cut_off()


@pytest.mark.parametrize("name", ["postgres.supaclaw", "postgres.superuser"])
async def test_a_password_that_is_gone_is_told_and_never_made_anew_for_a_cluster_that_has_one(
    server: EmbeddedPostgres, data: Path, name: str
) -> None:
    before = (data / "keys" / name).read_text()
    (data / "keys" / name).unlink()
    with pytest.raises(OwnerMustAct, match=rf"{name}'; put the old files back"):
        await server.start()
    assert not (data / "keys" / name).exists()
    (data / "keys" / name).write_text(before)
    await server.start()


async def test_the_memory_of_the_server_follows_its_data_until_the_owner_sets_it(
    server: EmbeddedPostgres, data: Path
) -> None:
    setting = "select setting::int * 8 || 'kB, ' || source from pg_settings where name = 'shared_buffers'"
    dsn = await server.start()
    assert await ask(dsn, setting) == "32768kB, command line"
    await ask(dsn, "create table big as select repeat(md5(n::text), 30) as words from generate_series(1, 45000) n")
    await ask(server.superuser_dsn(), "checkpoint")
    await server.stop()
    grown, source = str(await ask(await server.start(), setting)).split("kB, ")
    assert int(grown) > 45_000
    assert source == "command line"
    await server.stop()
    with (data / "postgres" / "postgresql.conf").open("a") as settings:
        settings.write("shared_buffers = 24MB\n")
    assert await ask(await server.start(), setting) == "24576kB, configuration file"
