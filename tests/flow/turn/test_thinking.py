"""The thinking of a model: kept apart with its run's label, in no prompt, and gone with its message."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta

from gateway.domain.conversation.model import ModelEvent, Prompt, Reply, ThinkingDelta, Thought, Usage
from gateway.domain.memory.erasing import Erasure
from gateway.flow.secrets.guard import CleanModel
from gateway.secrets.leaks import Leaks
from gateway.store.memory import erasing
from gateway.store.memory.erasing import Origins
from gateway.store.work import retention
from tests.flow.path import FakeModel, MessagePath, call, in_turn, said

ROWS = "select m.kind, t.text, t.tokens, t.ms, t.label = m.label from thoughts t join messages m on m.id = message_id"


def thinking(reply: Reply, text: str) -> Reply:
    return replace(reply, usage=Usage(10, 50, 0, 0.01, 40, 0.008), thought=Thought(text, 12_000))


async def test_it_is_kept_with_each_reply_and_reaches_no_prompt(path: MessagePath) -> None:
    step = said("", call("read_file", path="USER.md"))
    path.model.answer = in_turn(thinking(step, "A quagga?"), thinking(said("Done."), "Surely."), said("Bye."))
    async with path.working():
        await path.ask("look")
        why = await path.ask("/why")
        await path.ask("and?")
    assert [tuple(row) for row in await path.rows(ROWS)] == [
        ("tool_intent", "A quagga?", 40, 12_000, True),
        ("assistant", "Surely.", 40, 12_000, True),
    ]
    assert "50 out, $0.0100, of which 40 thinking ($0.0080)" in why
    assert not any(words in str(path.model.prompts) for words in ("quagga", "Surely"))
    assert "quagga" not in str(await path.transcript())


async def test_it_is_erased_with_its_conversation_and_ends_by_itself(path: MessagePath) -> None:
    path.model.answer = in_turn(thinking(said("Done."), "A quagga?"), thinking(said("Hm."), "Old."))
    async with path.working():
        await path.ask("look")
        async with path.database.transaction() as tx:
            counts = await erasing.erase(tx, Erasure(["quagga"], []), Origins({}, {}, frozenset()))
        assert counts["thoughts"] == 1
        await path.ask("and?")
    async with path.database.transaction() as tx:
        [at] = [row[0] for row in await tx.fetch("select created_at from thoughts")]
        assert await retention.clear(tx, retention.THOUGHTS, at) == 0
        assert await retention.clear(tx, retention.THOUGHTS, at + timedelta(seconds=1)) == 1


class Thinks(FakeModel):
    async def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        for piece in ("The key is opal-", "7731", ", so"):
            yield ThinkingDelta(piece)
        yield thinking(said("Done."), "The key is opal-7731, so")


async def test_a_secret_in_it_is_masked_in_the_stream_and_in_what_is_kept() -> None:
    leaks = Leaks()
    leaks.learn({"opal-7731": "<secret:x>"})
    model = CleanModel(Thinks(), lambda text: leaks.clean(text)[0], leaks)
    *pieces, reply = [event async for event in model.stream(Prompt(()))]
    assert isinstance(reply, Reply)
    assert reply.thought is not None
    streamed = "".join(piece.text for piece in pieces if isinstance(piece, ThinkingDelta))
    assert streamed == reply.thought.text
    assert "7731" not in streamed
