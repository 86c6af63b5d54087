"""The workspace on an object store: agents' tasks find their files on any machine, and kills lose nothing."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.conftest import one_of_a_class
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.s3_fixtures import bucket, careless, endpoint, s3
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import GatewayProcess, Json, configured, until

pytestmark = pytest.mark.thorough

__all__ = ["bucket", "careless", "endpoint", "s3"]

SCRIBE = "---\nname: Scribe\ndescription: Writes reports\n---\nYou write reports.\n"
STEPS = ("sync.stored", "sync.set", "sync.fetched", "sync.placed")
KILLS = [(store, step) for store in ("moto", "ignores conditions") for step in STEPS]
Make = Callable[[str], GatewayProcess]


def shared(endpoint: str, bucket: str) -> Json:
    keys = {"url": f"s3://{bucket}/home", "endpoint": endpoint, "access_key": "key", "secret_key": "secret"}
    return {"workspace": {**keys, "every": "1s"}, "net": {"private_allow": ["127.0.0.1"]}}


@pytest.fixture
async def make(
    tmp_path: Path, dsn: str, telegram: FakeTelegram, models: FakeModels, endpoint: str, bucket: str
) -> AsyncIterator[Make]:
    """Machines with a data folder each, the same configuration, the same database, the same bucket."""
    made: list[GatewayProcess] = []

    def machine(name: str) -> GatewayProcess:
        process = GatewayProcess(tmp_path / name, dsn)
        process.home.mkdir()
        process.configure(configured(telegram, models, **shared(endpoint, bucket)))
        made.append(process)
        return process

    yield machine
    for process in made:
        await process.close()


async def has(process: GatewayProcess, path: str, text: str) -> bool:
    file = process.workspace / path
    return file.is_file() and text in file.read_text()


async def test_a_task_runs_on_another_machine_with_the_files_of_the_one_that_died(
    make: Make, models: FakeModels
) -> None:
    write = Call("write_file", {"path": "reports/tea.md", "content": "green"})
    models.rules = [Rule("report on tea", tool_calls=(write,))]
    first, second = make("first"), make("second")
    await first.start()
    (first.workspace / ".agents/agents").mkdir(parents=True, exist_ok=True)
    (first.workspace / ".agents/agents/scribe.md").write_text(SCRIBE)
    (first.workspace / "AGENTS.md").write_text("Ada's own rules.")
    await second.start()
    await until(lambda: has(second, ".agents/agents/scribe.md", "reports"))
    await until(lambda: has(second, "AGENTS.md", "Ada's own rules."))
    await first.kill()

    async with second.http() as client:
        made = await client.post("/api/tasks", json={"agent": "scribe", "input": "report on tea mk1x"})
        assert made.status_code == 202, made.text
        status = (await client.get("/api/status")).json()
    assert status["vitals"]["files"].startswith("the same everywhere")
    await until(lambda: has(second, "reports/tea.md", "green"))
    await first.start()
    await until(lambda: has(first, "reports/tea.md", "green"))
    assert list(first.workspace.rglob("*.conflict-*")) == []
    [own] = await first.rows("select count(*) from synced_files where path ~ '^(sessions|memory|todo)/'")
    assert own["count"] == 0


@pytest.mark.parametrize("endpoint", ["moto"], indirect=True)
async def test_a_store_that_is_down_is_told_and_chats_go_on(
    make: Make, telegram: FakeTelegram, models: FakeModels
) -> None:
    first = make("first")
    config = configured(telegram, models, **shared("http://127.0.0.1:1025", "nowhere"))
    first.configure(config)
    await first.start()
    telegram.say("hello mk1x", 77)
    await telegram.wait_for(lambda tg: any("fin1x" in sent.text for sent in tg.sent))

    async def told() -> bool:
        async with first.http() as client:
            return "can't be reached" in (await client.get("/api/status")).json()["vitals"]["files"]

    await until(told)
    async with first.http() as client:
        assert (await client.get("/health")).text == "ok\n"


@pytest.mark.parametrize(
    ("endpoint", "step"),
    one_of_a_class(KILLS, {("moto", "sync.placed"), ("ignores conditions", "sync.set")}),
    indirect=["endpoint"],
)
async def test_killed_at_any_step_nothing_is_lost(make: Make, tmp_path: Path, step: str) -> None:
    first = make("first")
    await first.start()
    await first.terminate()
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()

    async def sync(folder: Path, **environ: str) -> int:
        process = await first.run("files", "sync", str(folder), **environ)
        await process.communicate()
        return process.returncode or 0

    (one / "both.md").write_text("base")
    assert await sync(one) == await sync(other) == 0
    (one / "both.md").write_text("one's")
    (one / "new.md").write_text("new")
    (other / "both.md").write_text("other's")
    if step in ("sync.stored", "sync.set"):
        assert await sync(one, SUPACLAW_FAIL=step) != 0
        assert await sync(other) == await sync(one) == await sync(other) == 0
    else:
        assert await sync(one) == 0
        assert await sync(other, SUPACLAW_FAIL=step) != 0
        assert await sync(other) == await sync(one) == 0

    found = {str(path.relative_to(one)): path.read_text() for path in one.rglob("*") if path.is_file()}
    there = {str(path.relative_to(other)): path.read_text() for path in other.rglob("*") if path.is_file()}
    shown = {text: path for path, text in found.items() if path in ("new.md", "both.md") or ".conflict-" in path}
    assert found == there
    assert {"one's", "other's", "new"} <= set(shown), found
    assert sum(".conflict-" in path for path in found) == 1
