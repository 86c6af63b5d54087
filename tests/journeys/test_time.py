"""What happens by itself: reminders, heartbeats, and what other programs send."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured, until

pytestmark = pytest.mark.thorough


def at(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def remind(name: str, prompt: str, **when: object) -> Rule:
    """A model that sets a reminder when it is asked to remind."""
    return Rule("remind me", tool_calls=(Call("cron", {"action": "add", "name": name, "prompt": prompt, **when}),))


async def due_now(gateway: GatewayProcess) -> None:
    """As if the hour had come while nothing ran."""
    await gateway.rows("update schedules set next_run_at = now() - interval '1 second', run_at = run_at")


async def test_a_reminder_set_in_telegram_fires_there_after_a_restart(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    models.rules = [
        Rule("water the plants", text="Time to water the plants!"),
        remind("plants", "water the plants", schedule_type="once", run_at=at(datetime.now(UTC) + timedelta(hours=9))),
        Rule("remind me", text="I'll remind you in nine hours.", after_tools=True),
    ]
    telegram.say("remind me about the plants in nine hours", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    assert telegram.sent[0].text == "I'll remind you in nine hours."

    await receipted(gateway, 1)
    await gateway.kill()
    await due_now(gateway)
    await gateway.start()
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)
    await receipted(gateway, 2)
    await gateway.restart()
    telegram.say("thanks mk1x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 3)

    assert [sent.chat for sent in telegram.sent] == [OWNER] * 3
    assert telegram.sent[1].text == "Time to water the plants!"
    assert "Time to water the plants!" in json.dumps(models.bodies[-1]["messages"])
    [run] = await gateway.rows("select * from schedule_runs")
    assert run["executed_at"]
    assert run["produced_at"]
    [schedule] = await gateway.rows("select * from schedules")
    assert schedule["completed_at"]
    assert schedule["next_run_at"] is None


async def receipted(gateway: GatewayProcess, messages: int) -> None:
    """Until the gateway knows that so many messages arrived."""

    async def known() -> bool:
        return len(await gateway.rows("select from outbox where state = 'sent'")) == messages

    await until(known)


async def test_a_scheduled_run_that_fails_alerts_once_and_tells_when_it_works_again(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    models.rules = [
        remind("news", "read the news", schedule_type="recurring", cron_expr="0 3 * * *"),
        Rule("remind me", text="Every night at three.", after_tools=True),
        Rule("read the news", status=401, message="wrong key"),
    ]
    telegram.say("remind me of the news every night", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    for n in (1, 2):
        await due_now(gateway)
        await eventually_run(gateway, n)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)
    assert "news" in telegram.sent[1].text
    assert "read the news" in telegram.sent[1].text

    models.rules[2] = Rule("read the news", text="Nothing but rain.")
    await due_now(gateway)
    await telegram.wait_for(lambda tg: len(tg.sent) == 4)
    later = [sent.text for sent in telegram.sent[2:]]
    assert "Nothing but rain." in later
    assert sum("again" in text for text in later) == 1


async def eventually_run(gateway: GatewayProcess, runs: int) -> None:
    """Until so many runs are over."""

    async def over() -> bool:
        query = """select count(*) as n from schedule_runs r join tasks t on t.id = r.task_id
                   where t.status in ('completed', 'failed')"""
        return (await gateway.rows(query))[0]["n"] == runs

    await until(over)


async def test_what_a_trigger_brings_arrives_in_the_owners_chat(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    models.rules = [Rule("disk is full", text="Your server's disk is full.")]
    async with gateway.http() as client:
        body = {"source": "server", "payload": {"alert": "disk is full"}, "idempotency_key": "a1"}
        first = await client.post("/trigger", json=body)
        again = await client.post("/trigger", json=body)
        assert (first.status_code, again.status_code) == (202, 202)
        task = first.json()["task_id"]
        assert again.json()["task_id"] == task
        await telegram.wait_for(lambda tg: len(tg.sent) == 2)

        async def completed() -> bool:
            return (await client.get(f"/api/tasks/{task}")).json()["status"] == "completed"

        await until(completed)
    assert telegram.sent[1].text == "From server (not verified):\n\nYour server's disk is full."
    assert models.count == 2


@pytest.mark.parametrize(
    ("reply", "said"), [("Your train leaves in an hour.", ["Your train leaves in an hour."]), ("Heartbeat OK.", [])]
)
async def test_a_heartbeat_with_news_speaks_and_one_without_is_silent(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, reply: str, said: list[str]
) -> None:
    process.configure(configured(telegram, models, heartbeat={"every": None}))
    await process.start()
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    idle = await process.command("heartbeat")
    assert (idle.code, models.count) == (0, 1)

    (process.workspace / "HEARTBEAT.md").write_text("- Look at my trains.\n")
    models.rules = [Rule("", text=reply)]
    beat = await process.command("heartbeat")
    assert beat.code == 0
    assert models.count == 2
    telegram.say("still there? mk2x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2 + len(said))
    assert [sent.text for sent in telegram.sent[1:-1]] == said

    async def kept() -> bool:
        """The journal is written after the answer has been sent."""
        files = list((process.workspace / "sessions" / "heartbeat").rglob("*.md"))
        return [reply in file.read_text() for file in files] == [True]

    await until(kept)
