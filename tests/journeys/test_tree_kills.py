"""A chat starts a tree of two agents whose children run side by side; the process is killed in the middle of it."""

import asyncio
import random

import pytest

from gateway.config.failpoints import Step
from tests.conftest import one_of_a_class
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, until

pytestmark = pytest.mark.thorough

PARTS = 3
LETTER = Call("send_message", {"text": "the letter"})


def written(gateway: GatewayProcess) -> None:
    folder = gateway.workspace / ".agents" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    for slug in ("boss", "worker"):
        (folder / f"{slug}.md").write_text(f"---\nname: {slug}\ndescription: does {slug}\n---\nYou are {slug}.")


def rules() -> list[Rule]:
    parts = [{"agent": "worker", "input": f"part{n}x"} for n in range(PARTS)]
    return [
        # A kill while the model answers makes the run ask it again.
        Rule("please mk1x", tool_calls=(Call("start_task", {"agent": "boss", "input": "whole9x"}),), times=10),
        Rule("whole9x", tool_calls=(Call("create_subtask", {"tasks": parts}),), times=10),
    ]


async def over(gateway: GatewayProcess) -> None:
    async def done() -> bool:
        [row] = await gateway.rows(
            """select count(*) filter (where status = 'completed') as over, count(*) as tasks,
                      (select count(*) from outbox where state in ('pending', 'sending')) as unsent
               from tasks where kind = 'agent'"""
        )
        return (row["over"], row["tasks"], row["unsent"]) == (PARTS + 1, PARTS + 1, 0)

    await until(done)


async def told(gateway: GatewayProcess) -> int:
    """How often the tree's result stands in the chat."""
    [row] = await gateway.rows(
        """select count(*) from messages m join tasks t on t.id = m.task_id
           where t.kind = 'agent' and t.parent_id is null and m.origin = 'task' and m.kind = 'assistant'
             and m.session_id <> t.session_id"""
    )
    return int(row["count"])


@pytest.mark.parametrize(
    "step",
    one_of_a_class(
        [
            f"{Step.STEP_COMMITTED}:2",
            Step.NODE_TURNED,
            Step.NODE_ACTED,
            f"{Step.NODE_TURNED}:3",
            Step.ANSWER_READY,
            f"{Step.ANSWER_COMMITTED}:4",
        ],
        {Step.NODE_ACTED, f"{Step.NODE_TURNED}:3"},
    ),
)
async def test_the_result_arrives_once(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels, step: str
) -> None:
    models.rules = rules()
    telegram.say("hello mk0x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    await gateway.terminate()
    written(gateway)
    await gateway.spawn(SUPACLAW_FAIL=step)
    telegram.say("please mk1x", OWNER)
    assert (await gateway.ended()).code == -9

    await gateway.start()
    await over(gateway)
    assert await told(gateway) == 1


async def test_kills_at_random_moments(gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels) -> None:
    models.rules = rules()
    telegram.say("hello mk0x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    written(gateway)
    telegram.say("please mk1x", OWNER)
    chance = random.Random(7)
    for _ in range(3):
        await asyncio.sleep(chance.uniform(0.05, 0.4))
        await gateway.kill()
        await gateway.start()
    await over(gateway)
    assert await told(gateway) == 1


@pytest.mark.parametrize(("answer", "again"), [("/deny A1 it ran", 0), ("/approve A1", 1)])
async def test_an_act_that_a_kill_left_without_its_result_is_asked_about_and_not_repeated(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels, answer: str, again: int
) -> None:
    calls = [("please mk1x", Call("start_task", {"agent": "boss", "input": "whole9x"})), ("whole9x", LETTER)]
    models.rules = [Rule(match, tool_calls=(call,), times=1) for match, call in calls]
    telegram.say("hello mk0x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    await gateway.terminate()
    written(gateway)
    await gateway.spawn(SUPACLAW_FAIL=f"{Step.TOOL_RAN}:2")
    telegram.say("please mk1x", OWNER)
    assert (await gateway.ended()).code == -9

    await gateway.start()
    await telegram.wait_for(lambda tg: any("did this run?" in each.text for each in tg.sent))

    async def delivered() -> bool:
        """The letter may be on its way; one that the kill cut off is uncertain, and not sent again."""
        return not await gateway.rows("select from outbox where state in ('pending', 'sending')")

    await until(delivered)
    sent = [each.text for each in telegram.sent].count("the letter")
    assert sent <= 1
    asked = next(each for each in telegram.sent if "did this run?" in each.text)
    telegram.press(asked, answer)

    async def ended() -> bool:
        rows = await gateway.rows("select status from tasks where kind = 'agent'")
        return [row["status"] for row in rows] == ["completed"]

    await until(ended)
    await telegram.wait_for(lambda tg: [each.text for each in tg.sent].count("the letter") == sent + again)
