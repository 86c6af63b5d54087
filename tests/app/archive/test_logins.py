"""What a channel has to remember by itself goes along, when secrets do."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.app.archive.restore import restore, unpack
from gateway.app.database import reach
from tests.app.archive.conftest import House
from tests.store.world import World

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
