"""A gateway behind a real PgBouncer in transaction mode, as Supabase has one; needs the Debian package `pgbouncer`."""

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.chaos.proxy import Proxy, postgres_behind
from tests.conftest import Server
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MOST_CONNECTIONS = 15
USER = 65534 if os.geteuid() == 0 else None

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")


def settings_for(folder: Path, dsn: str, port: int, upstream: int, members: str) -> Path:
    """Settings that the one can read who runs it: nobody, if root does, as whom it refuses to run."""
    parts, users = urlsplit(dsn), folder / "users.txt"
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={upstream}\n[pgbouncer]\npool_mode = transaction\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = scram-sha-256\nauth_file = {users}\n"
        "default_pool_size = 5\nignore_startup_parameters = extra_float_digits\n"
    )
    users.write_text(f'"{parts.username}" "{unquote(str(parts.password))}"\n"supaclaw_member" "{members}"\n')
    for path in (folder, *folder.iterdir()):
        os.chown(path, USER or -1, -1)
    return folder / "pgbouncer.ini"


@pytest.fixture
async def pooled(dsn: str, server: Server) -> AsyncIterator[str]:
    """The address of the same database behind a pooler that knows the gateway's user and that of members."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="pgb-") as folder:
        async with Proxy(postgres_behind(dsn)) as proxy:
            settings = settings_for(Path(folder), dsn, port, proxy.port, server.member_password)
            process = await asyncio.create_subprocess_exec(
                str(PROGRAM), str(settings), stderr=asyncio.subprocess.PIPE, user=USER
            )
            assert process.stderr is not None
            try:
                while b"listening on" not in (line := await asyncio.wait_for(process.stderr.readline(), 30)):
                    assert line, "pgbouncer ended"
                reading = asyncio.create_task(process.stderr.read())
                address = f"{dsn.partition('@')[0]}@127.0.0.1:{port}{urlsplit(dsn).path}"
                yield f"{address}?pool_mode=transaction&member_password={server.member_password}"
                process.terminate()
                await reading
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()


async def test_a_gateway_behind_a_transaction_pooler_answers_its_owner_and_its_members(
    pooled: str, process: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    direct, process.dsn = process.dsn, pooled
    config = configured(telegram, models)
    config["channels"]["telegram"]["allow"] += ["100"]
    process.configure(config)
    await process.start()
    for number, chat in enumerate((OWNER, 100, OWNER), start=1):
        telegram.say(f"hello mk{number}x", chat)
        await telegram.wait_for(lambda tg, n=number: any(f"fin{n}x" in sent.text for sent in tg.sent))
    process.dsn = direct
    [row] = await process.rows("select count(*) from leases where name = 'channel telegram' and expires_at > now()")
    assert row["count"] == 1
    assert (await process.terminate()).code == 0


async def test_a_gateway_uses_few_connections(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    config = configured(telegram, models)
    config["channels"]["telegram"]["allow"] += [str(chat) for chat in range(100, 140)]
    process.configure(config)
    await process.start()
    most = 0
    for chat in range(100, 140):
        telegram.say(f"hello mk{chat}x", chat)
    while len(telegram.sent) < 40:
        [row] = await process.rows(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        most = max(most, row["count"])
    assert 0 < most <= MOST_CONNECTIONS
