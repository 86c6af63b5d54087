"""The story of a swarm: two agents, a hand-off, a server that wants a credential, a skill, a person, a live trace."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.flow.secrets.vault import Vault
from gateway.secrets.facts import Binding
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from tests.fakes.mcp_server import FakeMcp
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured, until
from tests.workspace.skills.writing import skill_md

pytestmark = pytest.mark.thorough

CREDENTIAL = "cr3d-of-the-weather-5bb1f0a2c9"
SKILL = "Round every temperature to whole degrees."


@pytest.fixture
async def weather() -> AsyncIterator[FakeMcp]:
    server = FakeMcp(token=CREDENTIAL)
    server.add("weather", "Tells the weather.")
    async with server.running():
        yield server


def agent(gateway: GatewayProcess, slug: str, *head: str) -> None:
    folder = gateway.workspace / ".agents" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"name: {slug}", f"description: does {slug}", *head]
    (folder / f"{slug}.md").write_text("\n".join(["---", *lines, "---", f"You are {slug}."]))


async def prepared(gateway: GatewayProcess, weather: FakeMcp, place: Path) -> None:
    """The skill and the server's tool on, its credential in the vault."""
    (skill := place / "rounding").mkdir()
    (skill / "SKILL.md").write_text(skill_md("rounding", "Rounds numbers.", body=SKILL))
    assert (await gateway.command("skills", "install", str(skill), "--yes")).code == 0
    assert gateway.dsn is not None
    async with await Database.connect(gateway.dsn) as database:
        async with database.connection() as conn:
            owner = await principals.owner(conn)
        assert owner is not None
        bound = Binding.of([f"http://{weather.place}"], ["mcp_w"], "header:Authorization")
        await Vault(database, gateway.data, {}).put(owner.id, "WEATHER", CREDENTIAL, shared=True, binding=bound)
    tested = await gateway.command("tools", "test")
    assert tested.code == 0, tested.told
    assert (await gateway.command("tools", "confirm", "mcp_w_weather", "--class", "read", "--yes")).code == 0


def script() -> list[Rule]:
    def then(*calls: Call) -> Rule:
        return Rule("whole9x", tool_calls=calls, after_tools=True, times=1)

    # The newest first: a later prompt may recall the words of an earlier one.
    return [
        Rule("part[0-9]x", hang=True),
        Rule("whole8x", tool_calls=(Call("create_subtask", {"tasks": [{"input": f"part{n}x"} for n in range(3)]}),)),
        Rule("please mk2x", tool_calls=(Call("start_task", {"agent": "planner", "input": "whole8x"}),)),
        Rule("please mk1x", tool_calls=(Call("start_task", {"agent": "planner", "input": "whole9x"}),)),
        Rule("whole9x", tool_calls=(Call("load_skill", {"name": "rounding"}),), times=1),
        then(Call("handoff", {"agent": "reporter"})),
        then(Call("todo", {"trivial": "one question"})),
        then(Call("mcp_w_weather", {"city": "Ghent"})),
        then(Call("request_human_review", {"question": "Shall I report 21 degrees?"})),
        then(Call("complete_task", {"output": "It is 21 degrees in Ghent."})),
    ]


async def trace(gateway: GatewayProcess, master: str, seen: list[dict[str, object]]) -> None:
    async with gateway.http() as client, client.stream("GET", f"/api/events?master={master}") as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line[6:]))


async def root(gateway: GatewayProcess, number: int) -> str:
    """The first task of the tree that was started as that one."""

    async def there() -> bool:
        return len(await gateway.rows("select from tasks where kind = 'agent' and parent_id is null")) >= number

    await until(there)
    rows = await gateway.rows("select id from tasks where kind = 'agent' and parent_id is null order by seq")
    return str(rows[number - 1]["id"])


async def working_parts(gateway: GatewayProcess, models: FakeModels) -> None:
    """All three parts of the second tree wait for the model."""

    async def working() -> bool:
        running = await gateway.rows("select from tasks where parent_id is not null and status = 'running'")
        return len(running) == 3 and sum("part" in asked.last_user for asked in models.asked) >= 3

    await until(working)


async def everything(gateway: GatewayProcess) -> str:
    """All rows and all logs."""
    tables = await gateway.rows("select tablename as name from pg_tables where schemaname = 'supaclaw'")
    rows = [await gateway.rows(f'select t::text as row from "{table["name"]}" t') for table in tables]
    logs = [file.read_text(errors="replace") for file in (gateway.data / "logs").rglob("*") if file.is_file()]
    return "\n".join([*(row["row"] for each in rows for row in each), *logs, *gateway.told])


async def test_the_story(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, weather: FakeMcp, tmp_path: Path
) -> None:
    server = {"url": weather.url, "headers": {"Authorization": "Bearer ${secret:WEATHER}"}}
    tools = {"tools": {"mcp": {"w": server}}, "net": {"private_allow": [weather.place]}}
    process.configure(configured(telegram, models, **tools))
    models.rules = script()
    await process.start()
    await prepared(process, weather, tmp_path)
    agent(process, "planner", "skills: [rounding]")
    agent(process, "reporter", "tools: [mcp_w_weather]")
    seen: list[dict[str, object]] = []

    telegram.say("please mk1x", OWNER)
    master = await root(process, 1)
    following = asyncio.create_task(trace(process, master, seen))
    await telegram.wait_for(lambda tg: any("Shall I report 21 degrees?" in sent.text for sent in tg.sent))
    asked = next(sent for sent in telegram.sent if "Shall I report" in sent.text)
    telegram.press(asked, "/approve A1")
    await asyncio.wait_for(following, 60)
    await telegram.wait_for(lambda tg: any("It is 21 degrees in Ghent." in sent.text for sent in tg.sent))

    assert weather.called == [("weather", {"city": "Ghent"})]
    told = [body for body in models.bodies if "whole9x" in json.dumps(body)]
    assert SKILL not in json.dumps(told[1]), "a skill is a name until it is loaded"
    assert SKILL in json.dumps(told[2])
    steps = [(step["kind"], step["name"], step["ok"]) for step in seen if step["type"] == "step"]
    assert [step for step in steps if step[0] not in ("model", "intent")] == [
        ("tool", "load_skill", True),
        ("hand-off", "planner > reporter", None),
        ("tool", "handoff", True),
        ("tool", "todo", True),
        ("tool", "mcp_w_weather", True),
        ("review", "A1", None),
        ("review", "A1", True),
        ("tool", "request_human_review", True),
        ("tool", "complete_task", True),
    ]
    assert sum(step[0] == "model" for step in steps) == 6
    assert seen[-1]["type"] == "end"

    telegram.say("please mk2x", OWNER)  # in a chat that has the first task's result, which a server's words shaped
    await telegram.wait_for(lambda tg: any("(start_task)" in sent.text for sent in tg.sent))
    question = next(sent for sent in telegram.sent if "(start_task)" in sent.text)
    telegram.press(question, f"/approve {question.text.partition(':')[0]}")
    master = await root(process, 2)
    await working_parts(process, models)
    models.dropped.clear()
    telegram.say(f"/tasks cancel {master[:8]}", OWNER)
    await asyncio.wait_for(models.dropped.wait(), 60)
    ended = await process.rows("select distinct status from tasks where master_id = $1::text::uuid", master)
    assert [row["status"] for row in ended] == ["cancelled"]

    shown = json.dumps([seen, [sent.text for sent in telegram.sent], models.bodies]) + await everything(process)
    for secret in (CREDENTIAL, "sk-of-the-owner", telegram.token, process.token):
        assert secret not in shown
