"""Killed while schedules are due: each slot runs once, and what it has to tell is said once."""

import asyncio
import random
from collections import Counter
from collections.abc import Collection
from uuid import uuid4

import pytest

from gateway.config.failpoints import Step
from tests.conftest import FULL
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, until

pytestmark = pytest.mark.thorough

LIVES = 6 if FULL else 2
EACH = 5
"""Schedules that are due in one life."""


async def plan(process: GatewayProcess, numbers: Collection[int]) -> None:
    """Due since a while, in the owner's chat; every other one is recurring."""
    async with process.connected() as connection:
        await connection.execute(
            """insert into schedules (principal_id, address_id, name, prompt, run_at, cron, origin, next_run_at)
               select a.principal_id, a.id, 'schedule ' || n, 'Say mk' || n || 'x.',
                      case when n % 2 = 0 then date_trunc('year', now()) end,
                      case when n % 2 = 1 then '0 0 1 1 *' end, 'telegram', date_trunc('year', now())
               from unnest($1::int[]) n, addresses a where a.channel = 'telegram'""",
            list(numbers),
        )


def shown(telegram: FakeTelegram, numbers: Collection[int]) -> Counter[int]:
    """How often the chat shows the answer of each."""
    return Counter({n: sum(f"fin{n}x" in sent.text for sent in telegram.sent) for n in numbers})


async def all_over(process: GatewayProcess, runs: int) -> None:
    """Until so many tasks of schedules are over, and nothing waits to be sent."""

    async def over() -> bool:
        query = """select count(*) filter (where status in ('completed', 'failed', 'cancelled')) as over,
                          (select count(*) from outbox where state in ('pending', 'sending')) as unsent
                   from tasks where kind = 'agent'"""
        [row] = await process.rows(query)
        return (row["over"], row["unsent"]) == (runs, 0)

    await until(over)


async def check_runs(process: GatewayProcess, numbers: Collection[int]) -> None:
    """Each schedule had one task, which came to its end, and is as it should be after its slot."""
    names = sorted(f"schedule {n}" for n in numbers)
    tasks = await process.rows("select input->>'name' as name, status, error from tasks where kind = 'agent'")
    assert sorted(task["name"] for task in tasks) == names
    assert {task["status"] for task in tasks} == {"completed"}, tasks
    runs = await process.rows(
        "select s.name, r.* from schedule_runs r join schedules s on s.id = r.schedule_id order by s.id"
    )
    assert sorted(run["name"] for run in runs) == names
    assert all(run["executed_at"] and run["produced_at"] and run["message_id"] for run in runs)
    stands = await process.rows(
        """select name from schedules where task_id is not null and paused_at is null
             and case when cron is null then completed_at is not null and next_run_at is null
                      else completed_at is null and next_run_at > now() end"""
    )
    assert sorted(row["name"] for row in stands) == names


@pytest.mark.parametrize("step", [Step.SCHEDULE_DUE, Step.SCHEDULE_ENQUEUED])
async def test_a_slot_survives(gateway: GatewayProcess, telegram: FakeTelegram, step: Step) -> None:
    telegram.say("hello mk0x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    await gateway.terminate()
    numbers = range(1, EACH + 1)
    await plan(gateway, numbers)
    await gateway.spawn(SUPACLAW_FAIL=step)
    assert (await gateway.ended()).code == -9
    queued = await gateway.rows("select from tasks where kind = 'agent'")
    assert len(queued) == (EACH if step is Step.SCHEDULE_ENQUEUED else 0)

    await gateway.start()
    await all_over(gateway, EACH)
    await gateway.restart()
    telegram.say("still there? mk99x", OWNER)
    await telegram.wait_for(lambda tg: bool(shown(tg, [99])[99]))
    assert shown(telegram, numbers) == dict.fromkeys(numbers, 1)
    await check_runs(gateway, numbers)

    async def delivered() -> bool:
        return not await gateway.rows("select from schedule_runs where delivered_at is null")

    await until(delivered)


async def test_slots_survive_kills_at_any_instant(gateway: GatewayProcess, telegram: FakeTelegram) -> None:
    seed = uuid4().hex[:8]
    print(f"seed {seed}")
    chance = random.Random(seed)
    telegram.say("hello mk0x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    await gateway.kill()
    numbers = range(1, LIVES * EACH + 1)
    for life in range(LIVES):
        await plan(gateway, numbers[life * EACH :][:EACH])
        await gateway.spawn()
        if chance.random() < 0.8:
            await gateway.hears("ready")
        await asyncio.sleep(chance.uniform(0.0, 0.6))
        await gateway.kill()
        if life % 2:  # what is interrupted three times is given up
            await gateway.start()
            await all_over(gateway, (life + 1) * EACH)
            await gateway.kill()
    await check_runs(gateway, numbers)

    doubtful = await gateway.rows(
        """select s.name from outbox o join schedule_runs r using (message_id) join schedules s on s.id = r.schedule_id
           where o.state = 'uncertain'"""
    )
    unsure = {int(row["name"].split()[1]) for row in doubtful}
    for number, times in shown(telegram, numbers).items():
        assert times == 1 or (times == 0 and number in unsure), f"schedule {number} was told {times} times"


async def test_the_plan_of_a_run_outlives_a_kill(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    todo = Call("todo", {"steps": ["read", "report"], "title": "Report"})
    models.rules = [Rule("Say mk1x", tool_calls=(todo,))]
    telegram.say("hello mk0x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    await gateway.terminate()
    await plan(gateway, [1])
    await gateway.spawn(SUPACLAW_FAIL=Step.RESULT_COMMITTED)
    assert (await gateway.ended()).code == -9
    file = gateway.workspace / "todo" / "todo.md"
    assert "- [ ] read\n- [ ] report\n" in file.read_text()
    assert len(await gateway.rows("select from todo_lists")) == 1

    await gateway.start()
    await all_over(gateway, 1)

    async def gone() -> bool:
        return not await gateway.rows("select from todo_lists") and not file.exists()

    await until(gone)
    assert shown(telegram, [1]) == {1: 1}
