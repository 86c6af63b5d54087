"""Killed at every named step: nothing is lost, nothing is said twice."""

from pathlib import Path

import httpx
import pytest

from gateway.config.failpoints import Step
from tests.conftest import one_of_a_class
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, Json, configured, said, until

NOTICE = "I was restarted while sending my last answer; /last shows it again."
WITH_TOOLS = {Step.STEP_COMMITTED, Step.TOOL_RAN, Step.RESULT_COMMITTED}
WITH_SUMMARY = {Step.SUMMARY_READY, Step.SUMMARY_COMMITTED}
WITH_A_FILE = {Step.INGEST_KEPT, Step.INGEST_READ}
COMMANDS = {Step.COMMAND_ACCEPTED, Step.COMMAND_COMMITTED}
DELIVERY = {Step.OUTBOX_SENDING, Step.OUTBOX_REQUESTED, Step.OUTBOX_SENT}
MEMORY = {Step.MEMORY_INDEXED, Step.MEMORY_COUNTED, Step.MEMORY_EMBEDDED, Step.MEMORY_JUDGED}
ERASURE = {step for step in Step if step.value.startswith("erasure.")}
ELSEWHERE = {
    *(Step.INBOUND_SPOOLED, Step.SCHEDULE_DUE, Step.SCHEDULE_ENQUEUED, Step.APPROVAL_STARTED, Step.APPROVAL_RAN),
    *(Step.NODE_TURNED, Step.NODE_ACTED, Step.OPENCLAW_STEP),
    *(Step.SYNC_STORED, Step.SYNC_SET, Step.SYNC_FETCHED, Step.SYNC_PLACED),
    *MEMORY,
    *ERASURE,
}
"""No message that somebody writes comes by these."""
QUICK = {
    *(Step.INBOUND_COMMITTED, Step.INGEST_KEPT, Step.COMMAND_COMMITTED, Step.TURN_TAKEN, Step.SUMMARY_READY),
    *(Step.MODEL_REPLIED, Step.TOOL_RAN, Step.ANSWER_COMMITTED, Step.OUTBOX_REQUESTED),
}
QUICK_REQUESTS = {Step.INBOUND_JOURNALED, Step.ANSWER_READY}
"""Other steps than those of `QUICK`: where a request's way in and its way out are not a chat's."""
SHOWN = {Step.OUTBOX_SENDING: [NOTICE], Step.OUTBOX_REQUESTED: ["answer", NOTICE]}
"""What the chat sees of the interrupted message, where it is not just the answer."""


@pytest.fixture
def models(models: FakeModels) -> FakeModels:
    """Reaches for a tool when the message says so, and can write a summary."""
    write = Call("write_file", {"path": "tea.md", "content": "green"})
    summary = "## Goal\nSay hello.\n## Decisions\nNone.\n## Worth remembering\n- Ada says hello."
    models.rules = [Rule("the summary of this record", text=summary), Rule("with a tool", tool_calls=(write,))]
    return models


def settings_for(step: Step) -> dict[str, Json]:
    return {"compaction": {"at_tokens": 50}} if step in WITH_SUMMARY else {}


def before(step: Step) -> list[str]:
    """What has been said and answered by then, in the same conversation."""
    return ["before mk0x"] if step in WITH_SUMMARY else []


def words_for(step: Step) -> str:
    if step in COMMANDS:
        return "/ping"
    return "with a tool mk1x" if step in WITH_TOOLS else "hello mk1x"


def kind_of(text: str) -> str:
    return "answer" if "fin0x" in text or "fin1x" in text or text.startswith("pong") else text


async def check_transcript(process: GatewayProcess, step: Step) -> None:
    """Every message is there once and answered, every call has its result, in one unbroken order."""
    rows = await process.rows("select * from messages order by seq")
    users = [row for row in rows if row["kind"] == "user"]
    commands = await process.rows("select handled_at from inbox where kind = 'command'")
    asked = ["after mk2x"] if step in COMMANDS else [*before(step), words_for(step), "after mk2x"]
    assert [row["text"] for row in users] == asked
    assert [row["handled_at"] is not None for row in commands] == [True] * (step in COMMANDS)
    assert len({row["answered_by"] for row in users} - {None}) == len(users)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    calls = [row["call_id"] for row in rows if row["kind"] == "tool_intent"]
    assert [row["call_id"] for row in rows if row["kind"] == "tool_result"] == calls
    assert len(calls) == (step in WITH_TOOLS)
    facts = await process.rows("select text from memories where kind = 'memory'")
    assert [row["text"] for row in facts] == ["Ada says hello."] * (step in WITH_SUMMARY)
    sent = await process.rows("select f.path from attachments a join files f on f.id = a.file_id")
    assert [row["path"].rpartition("/")[2] for row in sent] == ["letter.txt"] * (step in WITH_A_FILE)
    # A line about the file is written when the turn is over, and nobody waits for it.
    live = await process.rows("select status, error from tasks where status <> 'completed' and kind <> 'describe'")
    assert live == []


async def check_delivery(process: GatewayProcess, step: Step) -> None:
    """Of the newest the receipt may still be on its way to the database."""

    async def receipted() -> bool:
        return not await process.rows("select from outbox where state in ('pending', 'sending')")

    await until(receipted)
    states = {row["state"] for row in await process.rows("select state from outbox")}
    assert states == ({"sent", "uncertain"} if step in SHOWN else {"sent"})


async def crash(process: GatewayProcess, telegram: FakeTelegram, step: Step) -> None:
    """Start with the step armed, write, and see it die; then start again."""
    await process.start(SUPACLAW_FAIL=step)
    for text in before(step):
        telegram.say(text, OWNER)
        await telegram.wait_for(lambda tg: bool(tg.sent))
    if step in WITH_A_FILE:
        letter = {**telegram.keep(b"Dear Ada"), "file_name": "letter.txt", "mime_type": "text/plain"}
        telegram.say(None, OWNER, document=letter, caption=words_for(step))
    else:
        telegram.say(words_for(step), OWNER)
    assert (await process.ended()).code == -9
    await process.start()


async def check_chat(telegram: FakeTelegram, step: Step) -> None:
    """What is sent to one chat keeps its order, so the next answer comes after all that could be said twice."""
    owed = ["answer"] * len(before(step)) + SHOWN.get(step, ["answer"])
    await telegram.wait_for(lambda tg: len(tg.sent) >= len(owed))
    telegram.say("after mk2x", OWNER)
    await telegram.wait_for(lambda tg: any("fin2x" in sent.text for sent in tg.sent))
    assert [kind_of(sent.text) for sent in telegram.sent[:-1]] == owed


@pytest.mark.parametrize("step", one_of_a_class([step for step in Step if step not in ELSEWHERE], QUICK))
async def test_a_telegram_message_survives(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, step: Step
) -> None:
    process.configure(configured(telegram, models, **settings_for(step)))
    await crash(process, telegram, step)

    await check_chat(telegram, step)
    await check_transcript(process, step)
    await check_delivery(process, step)


@pytest.mark.parametrize("step", one_of_a_class([Step.TURN_TAKEN, Step.OUTBOX_REQUESTED], {Step.OUTBOX_REQUESTED}))
async def test_the_embedded_postgres_is_found_running(
    embedded: GatewayProcess, telegram: FakeTelegram, models: FakeModels, step: Step
) -> None:
    embedded.configure(configured(telegram, models))
    await embedded.start(SUPACLAW_FAIL=step)
    postmaster = postmaster_of(embedded.data)
    telegram.say(words_for(step), OWNER)
    assert (await embedded.ended()).code == -9
    await embedded.start()

    assert postmaster_of(embedded.data) == postmaster
    await check_chat(telegram, step)
    await check_transcript(embedded, step)


@pytest.mark.parametrize(
    "step",
    one_of_a_class([step for step in Step if step not in DELIVERY | WITH_A_FILE | ELSEWHERE], QUICK_REQUESTS),
)
async def test_a_request_to_the_api_survives(process: GatewayProcess, models: FakeModels, step: Step) -> None:
    process.configure(configured(models=models, **settings_for(step)))
    await process.start(SUPACLAW_FAIL=step)
    for text in before(step):
        assert kind_of(said(await process.complete(text, key="before"))) == "answer"
    with pytest.raises(httpx.TransportError):
        await process.complete(words_for(step), key="first")
    assert (await process.ended()).code == -9
    await process.start()

    again = said(await process.complete(words_for(step), key="first"))
    assert kind_of(again) == "answer"
    assert said(await process.complete("after mk2x", key="second")).endswith("fin2x")
    assert said(await process.complete(words_for(step), key="first")) == again
    await check_transcript(process, step)


def postmaster_of(data: Path) -> int:
    return int((data / "postgres" / "postmaster.pid").read_text().splitlines()[0])
