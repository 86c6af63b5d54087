"""Several machines on one database: who has a channel, who takes it over, and what workers do."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, Json, configured

pytestmark = pytest.mark.thorough

PEOPLE = range(100, 124)

Make = Callable[[str], GatewayProcess]


@pytest.fixture
async def make(tmp_path: Path, dsn: str, telegram: FakeTelegram, models: FakeModels) -> AsyncIterator[Make]:
    """Machines with a data folder each, the same configuration and the same database."""
    config = configured(telegram, models)
    config["channels"]["telegram"]["allow"] += [str(person) for person in PEOPLE]
    async with machines(tmp_path, dsn, config) as machine:
        yield machine


@asynccontextmanager
async def machines(folder: Path, dsn: str, config: Json) -> AsyncIterator[Make]:
    made: list[GatewayProcess] = []

    def machine(name: str) -> GatewayProcess:
        process = GatewayProcess(folder / name, dsn)
        process.home.mkdir()
        process.configure(config)
        made.append(process)
        return process

    yield machine
    for process in made:
        await process.close()


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as slack:
        yield slack


async def until(true: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while True:
            if await true():
                return
            await asyncio.sleep(0.1)


async def states(process: GatewayProcess, channel: str = "telegram") -> str:
    async with process.http() as client:
        return str((await client.get("/api/status")).json()["channels"][channel])


async def holder(process: GatewayProcess, channel: str = "telegram") -> str:
    sql = "select holder::text from leases where name = 'channel ' || $1 and expires_at > now()"
    [row] = await process.rows(sql, channel)
    return str(row["holder"])


def id_of(process: GatewayProcess) -> str:
    return (process.data / "instance").read_text().strip()


def fins(telegram: FakeTelegram) -> Counter[str]:
    return Counter(word for sent in telegram.sent for word in sent.text.split() if word.startswith("fin"))


async def test_the_death_of_one_of_three_that_holds_telegram_loses_and_doubles_nothing(
    make: Make, telegram: FakeTelegram
) -> None:
    first, *others = (make(name) for name in ("first", "second", "third"))
    await first.start()
    for other in others:
        await other.start()
        assert "waits" in await states(other)
    assert await holder(others[0]) == id_of(first)

    async def traffic() -> None:
        for person in PEOPLE:
            telegram.say(f"hello mk{person}x", person)
            await asyncio.sleep(0.05)

    talking = asyncio.create_task(traffic())
    await telegram.wait_for(lambda tg: len(tg.sent) >= 4)
    await first.kill()
    await talking
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: "fin1x" in fins(tg))
    doubted = {sent.chat for sent in telegram.sent if "restarted" in sent.text}
    await telegram.wait_for(lambda tg: all(f"fin{each}x" in fins(tg) or each in doubted for each in PEOPLE))

    assert max(fins(telegram).values()) == 1
    assert await holder(others[0]) in {id_of(other) for other in others}
    [told] = await others[0].rows("select count(*) from messages where kind = 'user' and answered_by is null")
    assert told["count"] == 0
    async with others[0].http() as client:
        machines = (await client.get("/api/status")).json()["machines"].values()
    assert sum("dead since" in each and "unavailable" in each for each in machines) == 1, machines


async def test_slack_is_taken_over_with_its_threads_and_with_an_answer_that_is_half_shown(
    tmp_path: Path, dsn: str, slack: FakeSlack, models: FakeModels
) -> None:
    section = {"bot_token": slack.bot_token, "app_token": slack.app_token, "base_url": slack.url}
    config = configured(None, models, channels={"slack": section | {"access": "open", "groups": "mention"}})
    models.rules.append(Rule("mk2x", text=" ".join(["half", "shown", *["word"] * 50, "never"]), stall=20, times=1))
    async with machines(tmp_path, dsn, config) as machine:
        first, second = machine("first"), machine("second")
        await first.start()
        await second.start()
        assert "waits" in await states(second, "slack")
        root = str(slack.say("<@UBOT> hello mk1x", "C1", kind="channel")["ts"])
        await slack.wait_for(lambda app: any("fin1x" in text for text in app.shown))
        slack.say("and mk2x", "C1", kind="channel", thread=root)
        await slack.wait_for(lambda app: "half shown" in app.shown[-1])
        await first.kill()
        await slack.wait_for(lambda app: any("fin2x" in text for text in app.shown), 120)
        assert await holder(second, "slack") == id_of(second)
        slack.say("without a mention mk3x", "C1", kind="channel", thread=root)
        await slack.wait_for(lambda app: any("fin3x" in text for text in app.shown))

        assert [text.rpartition(" ")[2] for text in slack.shown] == ["fin1x", "fin2x", "fin3x"]
        listed = await second.rows("select thing from homes where thing = 'slack'")
        assert not listed


async def test_one_that_stops_gives_way_and_one_that_was_frozen_leaves(make: Make, telegram: FakeTelegram) -> None:
    first, second = make("first"), make("second")
    await first.start()
    await second.start()
    assert (await first.terminate()).code == 0
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: "fin1x" in fins(tg))
    assert await holder(second) == id_of(second)

    await first.start()
    second.running.send_signal(signal.SIGSTOP)
    telegram.say("hello mk2x", OWNER)
    await telegram.wait_for(lambda tg: "fin2x" in fins(tg))
    assert await holder(first) == id_of(first)
    second.running.send_signal(signal.SIGCONT)
    ended = await second.ended()

    assert ended.code == 1
    assert "another gateway took over" in ended.told
    telegram.say("hello mk3x", OWNER)
    await telegram.wait_for(lambda tg: "fin3x" in fins(tg))
    assert max(fins(telegram).values()) == 1


async def test_a_worker_runs_what_needs_no_files_and_with_the_workspace_all_else(
    make: Make, telegram: FakeTelegram
) -> None:
    first, away = make("first"), make("away")
    away.subcommand = "worker"
    await away.spawn()
    await away.hears("no gateway has been started on this database yet")
    await first.start()
    await away.hears("ready")
    await first.kill()
    for kind, of in (("summarise", "agents"), ("agent", "agents")):
        await first.rows(
            """insert into tasks (id, master_id, kind, lane, principal_id, input)
               select id, id, $1, $2, principal, '{}' from (select gen_random_uuid() as id) task,
                 (select id as principal from principals where role = 'owner') owner returning 1""",
            kind,
            of,
        )

    async def attempts(kind: str) -> int:
        [row] = await first.rows("select attempts + (status <> 'pending')::int as n from tasks where kind = $1", kind)
        return int(row["n"])

    await until(lambda: attempts("summarise"))
    assert not await attempts("agent")

    beside = replace(first, told=[], subcommand="worker")
    try:
        await beside.start()
        await until(lambda: attempts("agent"))
        kinds = await first.rows("select kind from instances order by kind")
        assert [row["kind"] for row in kinds] == ["gateway", "worker", "worker"]
        assert (await beside.terminate()).code == 0
    finally:
        await beside.close()
    listed = await away.run("machines")
    told = (await listed.communicate())[0].decode()
    assert ("gateway" in told, "workspace" in told, told.count("worker")) == (True, True, 1)
