"""The program as it is now starts on what earlier ones left."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.app.storage.manifest import table_member
from gateway.app.storage.restore import put_in_place, unpack
from gateway.app.storage.upgrade import BACKUPS
from gateway.config.environment import Environment
from gateway.store.connection.pool import Database
from gateway.store.dump import load
from gateway.store.migrate import migrate, read_migrations
from gateway.workspace.template import TEMPLATE
from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, until
from tests.upgrades.leave import BACKUP, LANDINGS, LEARNED, SUMMARY, environ, read_environ

pytestmark = pytest.mark.thorough

LABELS = 8
"""The schema that has them."""
RESTORED_ROW = 1
"""What loading notes in `meta`."""


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram(numbered_from=1000) as telegram:
        yield telegram


@pytest.fixture
async def models() -> AsyncIterator[FakeModels]:
    async with FakeModels(Rule("the summary of this record", text=SUMMARY)) as models:
        yield models


@pytest.fixture(params=sorted(path.name for path in LANDINGS.iterdir()))
def landing(request: pytest.FixtureRequest) -> Path:
    return LANDINGS / str(request.param)


@pytest.fixture
async def gateway(
    landing: Path, tmp_path: Path, empty_dsn: str, telegram: FakeTelegram, models: FakeModels
) -> AsyncIterator[GatewayProcess]:
    """As it was left, schema included; of its `.env` only the places of the fakes are others."""
    gateway = GatewayProcess(tmp_path, empty_dsn, read_environ(landing / ".env") | environ(telegram, models))
    gateway.configure((landing / "config.json").read_text(encoding="utf-8"))
    (unpacked := tmp_path / "unpacked").mkdir()
    left = unpack(landing / BACKUP, unpacked)
    async with await Database.connect(empty_dsn) as database:
        await migrate(database, upto=left.schema_number)
        files = {table: unpacked / table_member(table) for table in left.tables}
        await load(database, files, left.counters, left.id)
    put_in_place(Environment(tmp_path / "config.json", gateway.data, gateway.workspace), unpacked)
    yield gateway
    await gateway.close()


async def check_upgrade(gateway: GatewayProcess, landing: Path) -> None:
    """The schema is this program's; if that is another one, what was there has been saved."""
    [row] = await gateway.rows("select max(number) as n from migrations")
    left = unpack(landing / BACKUP, None)
    assert row["n"] == len(read_migrations())
    saved = [unpack(path, None) for path in (gateway.data / BACKUPS).glob("*")]
    assert [(each.schema_number, each.rows) for each in saved] == (
        [] if left.schema_number == row["n"] else [(left.schema_number, left.rows + RESTORED_ROW)]
    )


async def check_older_files(gateway: GatewayProcess) -> None:
    """Their owner is asked, in one question, for those that anybody may have written before files had labels."""
    questions = "select arguments from reviews where tool = 'vouch_files'"

    async def asked() -> bool:
        return bool(await gateway.rows(questions))

    await until(asked)
    [paths] = [json.loads(row["arguments"])["paths"] for row in await gateway.rows(questions)]
    assert {"AGENTS.md", "USER.md"} <= paths.keys()
    assert not any(path.startswith(("SOUL", "TOOLS", "HEARTBEAT", "uploads/", "sessions/")) for path in paths)


async def test_everything_is_there_and_the_chat_goes_on(
    landing: Path, gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    await gateway.start()
    await check_upgrade(gateway, landing)
    older = unpack(landing / BACKUP, None).schema_number < LABELS
    if older:
        await check_older_files(gateway)

    asked = await gateway.rows("select text from messages where kind = 'user' order by id")
    assert [row["text"] for row in asked] == ["hello mk1x", "what is in it? mk2x", "request mk3x"]
    answers = await gateway.rows("select text from messages where kind = 'assistant' and final order by id")
    assert [row["text"].split()[-1] for row in answers] == ["fin1x", "fin2x", "fin3x"]
    facts = await gateway.rows("select text from memories where kind = 'memory'")
    assert [row["text"] for row in facts] == ["Ada drinks green tea."]
    plans = await gateway.rows("select name, next_run_at is not null as waits from schedules order by name")
    assert [(row["name"], row["waits"]) for row in plans] == [("bank", True), ("list", False)]
    for name in ("SOUL.md", "TOOLS.md", "HEARTBEAT.md"):
        assert (gateway.workspace / name).read_text() == (TEMPLATE / name).read_text(), "keep its text in .released"
    for name, edited in (("AGENTS.md", LEARNED), ("USER.md", "Time zone: Europe/Berlin")):
        assert edited in (gateway.workspace / name).read_text()
        done = await gateway.command("workspace", "merge", name)
        assert "is merged" in done.told or "there is nothing to merge" in done.told
        assert edited in (gateway.workspace / name).read_text()
    [letter] = await gateway.rows("select path from files where path like 'uploads/%letter.txt'")
    assert (gateway.workspace / letter["path"]).read_bytes() == b"Dear Ada"

    telegram.say("and now? mk4x", OWNER)
    await telegram.wait_for(lambda tg: any("fin4x" in sent.text for sent in tg.sent), 30)
    if older:
        await telegram.wait_for(lambda tg: any("AGENTS.md" in sent.text for sent in tg.sent), 30)
    assert len(telegram.sent) == 1 + older, "the answer, and whose words older files are; nothing is said twice"
    assert any("Ada drinks green tea." in str(body["messages"]) for body in models.bodies)

    token = (gateway.workspace / "token.txt").read_text()
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client:
        listed = await client.get("/v1/models", headers={"Authorization": f"Bearer {token}"})
    assert listed.status_code == 200
