"""Fields that only a provider understands, from its reply through the transcript to its next prompt."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.conversation.model import AssistantMessage, Prompt, ProviderFields, Reply
from gateway.domain.ids import MessageId
from gateway.domain.memory.erasing import Erasure
from gateway.domain.principals import Label
from gateway.flow.secrets.guard import CleanModel
from gateway.secrets.leaks import Leaks
from gateway.store.connection.pool import Connection
from gateway.store.memory import erasing
from gateway.store.memory.erasing import Origins
from gateway.store.transcript import messages, sessions
from tests.flow.path import FakeModel, MessagePath, build, call, in_turn, restarted, said

ROWS = (
    "select m.kind, f.source, f.message, f.calls, f.label from provider_fields f join messages m on m.id = message_id"
)


def with_fields(reply: Reply, message: str = "I think.", source: str = "here") -> Reply:
    calls = tuple(json.dumps({"signature": each.name}) for each in reply.calls)
    return replace(reply, fields=ProviderFields(source, json.dumps({"reasoning": message}), calls))


def fields_in(prompt: Prompt) -> list[str | None]:
    said = [m for m in prompt.messages if isinstance(m, AssistantMessage)]
    return [m.fields and json.loads(m.fields.message)["reasoning"] for m in said]


async def test_they_are_in_the_next_prompt_of_the_run_and_of_later_turns(path: MessagePath) -> None:
    step = said("I look.", call("read_file", path="USER.md"), call("read_file", path="SOUL.md"))
    path.model.answer = in_turn(with_fields(step, "One."), with_fields(said("Done."), "Two."), said("Bye."))
    async with path.working():
        await path.ask("look")
        await path.ask("and?")
    _, second, third = path.model.prompts
    assert fields_in(second) == ["One."]
    assert fields_in(third) == ["One.", "Two."]
    assert [m.fields for m in second.messages if isinstance(m, AssistantMessage)] == [
        m.fields for m in third.messages if isinstance(m, AssistantMessage)
    ][:1]
    assert [(row[0], len(row[3])) for row in await path.rows(ROWS)] == [("tool_intent", 2), ("assistant", 0)]
    assert "think" not in str(await path.transcript())


async def test_a_pending_call_has_them_after_a_restart(path: MessagePath) -> None:
    path.model.answer = in_turn(with_fields(said("", call("read_file", path="USER.md"))))
    await path.tell("look")
    async with path.working():
        await path.model.called.wait()
        for _ in range(500):
            if await path.rows(ROWS):
                break
    again = await restarted(path)
    async with again.working():
        again.signals.tasks.set()
        for _ in range(500):
            if again.model.prompts:
                break
            await again.rows("select pg_sleep(0.02)")
    assert fields_in(again.model.prompts[0])[:1] == ["I think."]


async def test_a_summary_hides_them_with_their_messages(database: Any, workspace: Any) -> None:
    path = await build(database, workspace, FakeModel(), at_tokens=400)
    async with path.working():
        long = "word " * 500
        path.model.answer = in_turn(
            with_fields(said("One."), "Old."), with_fields(said("Two."), "New."), said("Three.")
        )
        await path.ask(f"first {long}")
        await path.ask(f"second {long}")
        await path.ask("third")
    assert "Old." not in fields_in(path.model.prompts[-1])
    assert fields_in(path.model.prompts[-1])[-1] == "New."


async def test_they_carry_the_label_of_their_run(path: MessagePath) -> None:
    accepted = await path.tell("look")

    async def taint(tx: Connection) -> None:
        [(session,)] = await path.rows("select session_id from messages where id = $1", accepted.message_id)
        await sessions.taint(tx, session, Label.UNTRUSTED)

    await path.database.run(taint)
    path.model.answer = in_turn(with_fields(said("", call("read_file", path="USER.md"))), with_fields(said("Done.")))
    async with path.working():
        await path.answer(accepted)
    assert [row[4] for row in await path.rows(ROWS)] == [Label.UNTRUSTED, Label.UNTRUSTED]


@pytest.mark.parametrize("where", ["message", "call"])
@pytest.mark.parametrize("secret", ["correct-horse-battery", 'quo"ted\nsecret'])
async def test_with_a_secret_in_them_they_are_dropped(where: str, secret: str) -> None:
    leaks = Leaks()
    leaks.learn({secret: "<secret:x>"})
    text = json.dumps({"reasoning": f"It is {secret}."})
    fields = ProviderFields("here", text if where == "message" else "{}", (text if where == "call" else "{}",))
    model = FakeModel(lambda _: replace(said("", call("look")), fields=fields))
    cleaned = CleanModel(model, lambda text: leaks.clean(text)[0], leaks)
    [reply] = [event async for event in cleaned.stream(Prompt(()))]
    assert isinstance(reply, Reply)
    assert (reply.fields, len(reply.calls)) == (None, 1)


async def erase(path: MessagePath, words: str, *said: MessageId) -> int:
    origins = Origins({}, dict.fromkeys(said, words), frozenset())
    counts = await path.database.run(lambda tx: erasing.erase(tx, Erasure([words], []), origins))
    return counts["provider_fields"]


@pytest.mark.parametrize(("reasoning", "asked"), [("The quagga waits.", "hello"), ("gAAAAB", "The quagga?")])
async def test_they_are_erased_with_what_they_quote_and_with_their_conversation(
    path: MessagePath, reasoning: str, asked: str
) -> None:
    path.model.answer = in_turn(with_fields(said("Yes."), reasoning), with_fields(said("Well."), "Other."))
    async with path.working():
        await path.ask(asked)
        await path.ask("/new")
        await path.ask("good morning")
    assert await erase(path, "quagga") == 1
    assert [json.loads(row[2])["reasoning"] for row in await path.rows(ROWS)] == ["Other."]
    assert "quagga" not in str(await path.transcript())


async def test_one_statement_reads_the_transcript_with_them(path: MessagePath) -> None:
    path.model.answer = in_turn(with_fields(said("One.")), said("Two."))
    async with path.working():
        await path.ask("one")
        await path.ask("two")
    [(session,)] = await path.rows("select distinct session_id from messages")
    sent: list[str] = []
    async with path.database.connection() as conn:
        with conn.query_logger(lambda record: sent.append(record.query)):
            rows = await messages.transcript(conn, session)
    assert (
        len([query for query in sent if "transcript" in query or "provider_fields" in query]) == 1
    )  # types are looked up
    assert [row.kept is not None for row in rows if row.kind == "assistant"] == [True, False]
