"""What becomes of a database that another version has been at."""

from pathlib import Path

import pytest

from gateway.app.storage.restore import unpack
from gateway.store.connection.pool import Database
from gateway.store.migrate import migrate, read_migrations
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured
from tests.journeys.test_backup_drill import run

pytestmark = pytest.mark.thorough

NEWEST = len(read_migrations())
OLD = NEWEST - 1
NEWER = """insert into migrations (number, name, sha256, compatible_from)
           select max(number) + 1, 'later', '', max(number) + 1 from migrations"""


@pytest.fixture
async def older(embedded: GatewayProcess) -> GatewayProcess:
    """Not running; its Postgres is of the version before, and does."""
    async with await Database.connect(await embedded.postgres.start()) as database:
        await migrate(database, upto=OLD)
    await embedded.rows("insert into principals (id, role, name) values (gen_random_uuid(), 'owner', 'Ada')")
    return embedded


async def schema(process: GatewayProcess) -> int:
    [row] = await process.rows("select max(number) as n from migrations")
    return int(row["n"])


async def test_a_start_saves_what_was_there_and_upgrades_it(
    older: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    older.configure(configured(telegram, models))

    await older.start()

    file = (await older.hears("upgrade.backup")).rpartition("file=")[2].strip().strip("'")
    assert unpack(Path(file), None).schema_number == OLD
    assert await schema(older) == NEWEST
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))


async def test_only_a_start_upgrades(older: GatewayProcess) -> None:
    ended = await run(older, "sessions")

    assert ended.code == 1
    assert f"The database has schema {OLD} and this SupaClaw needs {NEWEST}: stop a gateway" in ended.told
    assert "then start `supaclaw up`, which upgrades it" in ended.told
    assert await schema(older) == OLD


async def test_a_command_before_the_first_start_makes_nothing(embedded: GatewayProcess) -> None:
    ended = await run(embedded, "sessions")

    assert (ended.code, ended.told.count("\n")) == (1, 1)
    assert "`supaclaw up` sets one up" in ended.told
    assert not embedded.data.exists()


async def test_a_newer_database_is_left_alone_and_told_in_one_line(process: GatewayProcess) -> None:
    async with process.connected() as connection:
        await connection.execute(NEWER)

    for ended in (await process.refused(), await run(process, "sessions")):
        assert ended.code == 1
        assert "A newer SupaClaw wrote this database" in ended.told
        assert "update SupaClaw" in ended.told
        assert "Traceback" not in ended.told


async def test_a_gateway_that_finds_a_newer_schema_claims_nothing_more_and_says_so(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    await gateway.rows(NEWER)
    telegram.say("hello mk1x", OWNER)
    await gateway.hears("A newer SupaClaw wrote this database")

    assert "A newer SupaClaw wrote this database" in (await gateway.command("status")).told
    telegram.say("/status", OWNER)
    await telegram.wait_for(lambda tg: any("A newer SupaClaw wrote this database" in s.text for s in tg.sent))
    assert [row["status"] for row in await gateway.rows("select status from tasks")] == ["pending"]
    assert models.count == 0

    await gateway.rows("delete from migrations where name = 'later'")
    await telegram.wait_for(lambda tg: tg.sent[-1].text.endswith("fin1x"))
