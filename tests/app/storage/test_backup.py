import asyncio
import gzip
import json
import os
import socket
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import JsonValue

from gateway.app.storage.backup import saved_config
from gateway.app.storage.database import reach
from gateway.app.storage.restore import restore, unpack
from gateway.config.load import parse
from gateway.domain.errors import ConfigError, DiskFull, OwnerMustAct
from gateway.store.connection.pool import Database
from tests.app.storage.conftest import House
from tests.fakes.disks import disk, needs_root
from tests.store.world import World

TOKEN = "123456789:AAplanted_planted_planted_planted_12"


def names(path: Path) -> set[str]:
    with tarfile.open(path) as tar:
        return set(tar.getnames())


def everything_in(path: Path) -> bytes:
    """What lies in it, unpacked, headers and all."""
    return gzip.decompress(path.read_bytes())


async def test_it_holds_files_and_rows_and_what_they_hash_to(house: House, world: World, tmp_path: Path) -> None:
    house.put("workspace/notes/täglich.md", "milk")
    house.put("workspace/sessions/2026-01-01/00-00-00.md", "# journal")
    house.put(f"principals/{world.principal}/USER.md", "a friend")
    (house.home / "data/workspace/empty").mkdir()
    question = await world.ask("what is in a backup?")

    done = await house.back_up(tmp_path / "a.tar.gz")

    assert unpack(tmp_path / "a.tar.gz", None) == done
    assert {
        "workspace/notes/täglich.md",
        "workspace/sessions/2026-01-01/00-00-00.md",
        f"principals/{world.principal}/USER.md",
        "workspace/empty",
        "manifest.json",
    } <= names(tmp_path / "a.tar.gz")
    assert f"{question}\t{world.session}".encode() in everything_in(tmp_path / "a.tar.gz")
    assert (tmp_path / "a.tar.gz").stat().st_mode & 0o777 == 0o600


async def test_secrets_are_in_it_only_when_they_are_asked_for(house: House, world: World, tmp_path: Path) -> None:
    house.configure(channels={"telegram": {"token": TOKEN}}, database={"url": house.dsn})
    for name in ("keys/journal", "keys/postgres.superuser", "keys/local-token", "logs/gateway.log", "checkpoints/x"):
        house.put(name, f"PLANTED {name}")
    house.put("workspace/.writing-0123", "PLANTED")

    without = await house.back_up(tmp_path / "without.tar.gz")
    await house.back_up(tmp_path / "with.tar.gz", with_secrets=True)

    plain = everything_in(tmp_path / "without.tar.gz")
    assert without.left_out == ("channels.telegram.token",)
    assert TOKEN.encode() not in plain
    assert b"PLANTED" not in plain
    full = everything_in(tmp_path / "with.tar.gz")
    assert TOKEN.encode() in full
    assert full.count(b"PLANTED") == full.count(b"PLANTED keys/journal") == 1
    assert house.dsn.encode() not in full


async def test_links_are_kept_as_links_and_what_is_no_file_is_counted(
    house: House, world: World, tmp_path: Path
) -> None:
    (tmp_path / "private").write_text("PLANTED")
    root = house.home / "data/workspace"
    (root / "inside").symlink_to("AGENTS.md")
    (root / "outside").symlink_to(tmp_path / "private")
    (root / "folder").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "socket"))
        done = await house.back_up(tmp_path / "a.tar.gz")

    assert done.skipped == 4
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert tar.getmember("workspace/inside").linkname == "AGENTS.md"
    assert b"PLANTED" not in everything_in(tmp_path / "a.tar.gz")


async def test_a_file_that_is_there_is_replaced_only_by_force(house: House, world: World, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_text("precious")

    with pytest.raises(OwnerMustAct, match="--force"):
        await house.back_up(tmp_path / "a.tar.gz")
    assert (tmp_path / "a.tar.gz").read_text() == "precious"

    await house.back_up(tmp_path / "a.tar.gz", force=True)
    assert "workspace/AGENTS.md" in names(tmp_path / "a.tar.gz")


async def test_one_that_breaks_off_leaves_the_old_file_and_no_scrap(
    house: House, empty_dsn: str, tmp_path: Path
) -> None:
    place = tmp_path / "backups"
    place.mkdir()
    (place / "a.tar.gz").write_text("precious")
    strange = House(house.home, empty_dsn)

    with pytest.raises(OwnerMustAct, match="holds nothing of SupaClaw"):
        await strange.back_up(place / "a.tar.gz", force=True)

    assert [path.name for path in place.iterdir()] == ["a.tar.gz"]
    assert (place / "a.tar.gz").read_text() == "precious"


async def test_a_place_that_cannot_be_is_refused(house: House, world: World, tmp_path: Path) -> None:
    with pytest.raises(OwnerMustAct, match="choose a place outside"):
        await house.back_up(house.home / "data/workspace/a.tar.gz")
    with pytest.raises(OwnerMustAct, match="in a folder that exists"):
        await house.back_up(tmp_path / "no/such/folder/a.tar.gz")
    with pytest.raises(OwnerMustAct, match="in a folder that exists"):
        await house.back_up(tmp_path, force=True)


async def test_rows_and_files_that_arrive_meanwhile_do_no_harm(house: House, world: World, tmp_path: Path) -> None:
    log = house.put("workspace/growing.log", b"line\n" * 100_000)
    stop = asyncio.Event()

    async def go_on() -> int:
        written = 0
        while not stop.is_set():
            await world.ask(f"message {written}")
            with log.open("ab") as file:
                file.write(b"line\n" * 1000)
            house.put(f"workspace/new-{written % 7}.md", str(written))
            (house.home / f"data/workspace/new-{(written + 3) % 7}.md").unlink(missing_ok=True)
            written += 1
        return written

    writing = asyncio.create_task(go_on())
    try:
        for number in range(3):
            await house.back_up(tmp_path / f"{number}.tar.gz")
    finally:
        stop.set()
        written = await writing

    counts = [unpack(tmp_path / f"{number}.tar.gz", None).rows for number in range(3)]
    assert counts == sorted(counts)
    assert written > 0


async def test_it_does_not_change_the_database_it_looks_at(house: House, database: Database, tmp_path: Path) -> None:
    """Saving before an upgrade, with the new program, must not be the upgrade."""
    async with database.connection() as conn:
        await conn.execute("delete from migrations where number = (select max(number) from migrations)")
        before = await conn.fetchval("select max(number) from migrations")

    done = await house.back_up(tmp_path / "a.tar.gz")

    async with database.connection() as conn:
        assert await conn.fetchval("select max(number) from migrations") == before
    assert done.schema_number == before


SECRETS = {
    "models.providers.openai.api_key": "short",
    "channels.telegram.token": "123456789:AAplanted_planted_planted_planted_12",
    "channels.telegram.webhook_secret": "planted-webhook",
    "tools.mcp.github.env.GITHUB_PAT": "planted-pat",
    "tools.mcp.github.headers.X-Custom": "planted-header",
    "tools.mcp.web.url": "https://mcp.example/sse?api_key=planted-query",
    "tools.mcp.web.args[1]": "sk-planted-argument-0001",
    "models.providers.ollama.base_url": "http://user:planted-pass@host:11434",
}
CONFIG: dict[str, JsonValue] = {
    "owner": {"name": "Ada", "telegram": "77"},
    "models": {
        "primary": "openai/gpt-4o",
        "providers": {
            "openai": {"api_key": SECRETS["models.providers.openai.api_key"], "base_url": "http://10.0.0.1/v1"},
            "groq": {"api_key": "$env:GROQ_API_KEY"},
            "ollama": {"base_url": SECRETS["models.providers.ollama.base_url"]},
        },
    },
    "channels": {
        "telegram": {
            "token": SECRETS["channels.telegram.token"],
            "webhook_secret": SECRETS["channels.telegram.webhook_secret"],
            "allow": ["77"],
        }
    },
    "tools": {
        "mcp": {
            "github": {
                "env": {"GITHUB_PAT": SECRETS["tools.mcp.github.env.GITHUB_PAT"]},
                "headers": {"X-Custom": SECRETS["tools.mcp.github.headers.X-Custom"]},
            },
            "web": {"url": SECRETS["tools.mcp.web.url"], "args": ["--v", SECRETS["tools.mcp.web.args[1]"]]},
        }
    },
    "database": {"url": "postgresql://ada:planted-database@db/supaclaw"},
    "web": {"port": 9000},
}
ENVIRON = {"GROQ_API_KEY": "gsk-planted-in-the-environment"}


def cleared() -> tuple[str, tuple[str, ...]]:
    text = json.dumps(CONFIG)
    saved, left_out = saved_config(text, parse(text, ENVIRON), with_secrets=False)
    return saved.decode(), left_out


def test_no_secret_is_left_and_each_key_is_named() -> None:
    text, left_out = cleared()

    assert [value for value in SECRETS.values() if value in text] == []
    assert "planted" not in text.replace("$env:GROQ_API_KEY", "")
    assert sorted(left_out) == sorted(SECRETS)


def test_everything_else_stays_as_it_is() -> None:
    text, _ = cleared()
    raw = json.loads(text)

    assert raw["owner"] == CONFIG["owner"]
    assert raw["web"] == CONFIG["web"]
    for kept in ('"$env:GROQ_API_KEY"', '"http://10.0.0.1/v1"', '"openai/gpt-4o"', '"--v"', '"77"'):
        assert kept in text


def test_what_is_left_out_is_told_by_its_key_when_the_configuration_is_loaded() -> None:
    text, left_out = cleared()

    with pytest.raises(ConfigError) as told:
        parse(text, ENVIRON)

    lines = str(told.value).splitlines()
    assert len(lines) == len(left_out)
    for key in left_out:
        assert any(key in line and "NOT_IN_BACKUP" in line and "is not set" in line for line in lines), key


def test_with_secrets_only_the_address_of_the_database_is_left_out() -> None:
    text = json.dumps(CONFIG)
    saved, left_out = saved_config(text, parse(text, ENVIRON), with_secrets=True)

    assert left_out == ()
    assert json.loads(saved) == CONFIG | {"database": {}}


ACCOUNT = json.dumps({"number": "4915550001", "hidden": "", "device": 7})


@pytest.fixture
def linked(house: House, world: World) -> House:
    """A gateway whose owner has linked WhatsApp; one message waits."""
    house.put("channels/whatsapp/account.json", ACCOUNT)
    house.put("channels/whatsapp/spool/000000000003.event", b"said")
    house.put("channels/whatsapp/lock", "17\n")
    house.put("channels/slack/kept.json", "{}")
    with closing(sqlite3.connect(house.home / "data/channels/whatsapp/session.sqlite")) as session, session:
        session.execute("pragma journal_mode=wal")
        session.execute("create table keys as select 'PLANTED' as key")
    return house


async def test_a_login_is_put_back_for_its_owner_only(linked: House, other: House, tmp_path: Path) -> None:
    saved = await linked.back_up(tmp_path / "a.tar.gz", with_secrets=True)

    await restore(
        other.environment, other.config, tmp_path / "a.tar.gz", reach(other.environment, other.config, mine=True)
    )

    channels = other.home / "data/channels"
    assert saved.logins == ["whatsapp"]
    assert channels.stat().st_mode & 0o777 == 0o700
    files = {str(path.relative_to(channels)): path for path in channels.rglob("*") if path.is_file()}
    assert set(files) == {
        "whatsapp/account.json",
        "whatsapp/session.sqlite",
        "whatsapp/spool/000000000003.event",
    }
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}
    assert files["whatsapp/account.json"].read_text() == ACCOUNT
    with closing(sqlite3.connect(files["whatsapp/session.sqlite"])) as session:
        assert session.execute("select key from keys").fetchall() == [("PLANTED",)]


async def test_without_secrets_it_stays(linked: House, tmp_path: Path) -> None:
    await linked.back_up(tmp_path / "a.tar.gz")

    saved = unpack(tmp_path / "a.tar.gz", None)

    assert saved.logins == []
    assert not any(member.name.startswith("channels/") for member in saved.members)


async def test_a_channel_without_a_login_adds_nothing(house: House, world: World, tmp_path: Path) -> None:
    house.put("channels/slack/kept.json", "{}")
    (house.home / "data/channels/whatsapp").mkdir()

    assert (await house.back_up(tmp_path / "a.tar.gz", with_secrets=True)).logins == []


@needs_root
async def test_a_full_disk_keeps_the_backup_of_before_and_no_half_of_the_next(
    house: House, world: World, tmp_path: Path
) -> None:
    await world.ask("hello")
    with disk(tmp_path / "disk", 4) as folder:
        saved = folder / "saved.tar.gz"
        await house.back_up(saved)
        before = saved.read_bytes()
        house.put("workspace/noise", os.urandom(8 << 20))
        with pytest.raises(DiskFull):
            await house.back_up(saved, force=True)
        assert list(folder.iterdir()) == [saved]
        assert saved.read_bytes() == before
