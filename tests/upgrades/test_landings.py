"""The program as it is now starts on what earlier ones left."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.workspace.template import TEMPLATE
from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess
from tests.journeys.test_backup_drill import run
from tests.upgrades.leave import BACKUP, LANDINGS, LEARNED, SUMMARY, environ, read_environ


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
    """Restored from the landing, not yet started; of its `.env` only the places of the fakes are others."""
    gateway = GatewayProcess(tmp_path, empty_dsn, read_environ(landing / ".env") | environ(telegram, models))
    gateway.configure((landing / "config.json").read_text(encoding="utf-8"))
    done = await run(gateway, "restore", str(landing / BACKUP))
    assert done.code == 0, done.told
    yield gateway
    await gateway.close()


async def test_everything_is_there_and_the_chat_goes_on(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    await gateway.start()

    asked = await gateway.rows("select text from messages where kind = 'user' order by id")
    assert [row["text"] for row in asked] == ["hello mk1x", "what is in it? mk2x", "request mk3x"]
    answers = await gateway.rows("select text from messages where kind = 'assistant' and final order by id")
    assert [row["text"].split()[-1] for row in answers] == ["fin1x", "fin2x", "fin3x"]
    assert [row["text"] for row in await gateway.rows("select text from memories")] == ["Ada drinks green tea."]
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
    await telegram.wait_for(lambda tg: any(sent.text.endswith("fin4x") for sent in tg.sent), 30)
    assert [sent.text.split()[-1] for sent in telegram.sent] == ["fin4x"], "nothing is said twice"
    assert any("Ada drinks green tea." in str(body["messages"]) for body in models.bodies)

    token = (gateway.workspace / "token.txt").read_text()
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client:
        listed = await client.get("/v1/models", headers={"Authorization": f"Bearer {token}"})
    assert listed.status_code == 200
