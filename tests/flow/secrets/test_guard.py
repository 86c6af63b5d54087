"""A live secret that somebody or something brings in reaches neither the model nor a chat."""

import base64
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from gateway.domain.conversation.model import (
    Attempt,
    Model,
    ModelEvent,
    Prompt,
    Reply,
    Restarted,
    TextDelta,
    ToolCall,
)
from gateway.flow.live import TextWritten
from gateway.flow.secrets.guard import CleanModel
from gateway.secrets.leaks import Leaks
from tests.agent.scripted import ScriptedModel
from tests.flow.path import FakeModel, MessagePath, said

VALUE = "hush-hush-hush"
SHOWN = "${secret:KEY}"


async def knows(path: MessagePath) -> None:
    await path.secrets.vault.put(path.people.owner.id, "KEY", VALUE, shared=True)
    await path.secrets.look()


async def test_what_a_person_writes_is_replaced_before_it_is_stored(path: MessagePath, model: FakeModel) -> None:
    await knows(path)
    async with path.working():
        await path.ask(f"my key is {VALUE}, in Base64 {base64.b64encode(VALUE.encode()).decode()}")
        await path.journal.catch_up()
    assert await path.rows("select from messages where text like '%hush%'") == []
    assert VALUE not in str(model.prompts)
    assert SHOWN in str(model.prompts)
    assert not any(VALUE in each.read_text() for each in path.workspace.rglob("*.md"))


async def test_what_a_file_holds_reaches_the_model_as_a_name(path: MessagePath, model: FakeModel) -> None:
    await knows(path)
    (path.workspace / "notes.md").write_text(f"the key: {VALUE}\n")
    replies = iter([said("", ToolCall("1", "read_file", '{"path": "notes.md"}')), said("done")])
    model.answer = lambda _prompt: next(replies)
    async with path.working():
        await path.ask("read it")
    assert SHOWN in str(model.prompts[-1])
    assert VALUE not in str(model.prompts)
    assert await path.rows("select from messages where text like '%hush%'") == []


async def test_what_the_agent_says_is_replaced_before_it_is_stored_and_sent(
    path: MessagePath, model: FakeModel
) -> None:
    await knows(path)
    model.answer = lambda _prompt: said(f"It is {VALUE}.")
    async with path.working():
        assert await path.ask("say it") == f"It is {SHOWN}."
    assert await path.rows("select from messages where text like '%hush%'") == []
    assert await path.rows("select from outbox where text like '%hush%'") == []
    assert [each.text for each in path.channel.shown if VALUE in each.text] == []


async def test_a_file_is_not_embedded_with_a_secret(path: MessagePath) -> None:
    await knows(path)
    (path.workspace / "notes.md").write_text(f"# Access\n\nThe key of the weather service is {VALUE}, says Ada.\n")
    await path.indexing.files()
    chunks = [text for (text,) in await path.rows("select text from memories where kind = 'chunk'")]
    assert any(SHOWN in text for text in chunks)
    assert not any(VALUE in text for text in chunks)


async def test_log_lines_have_the_name(path: MessagePath) -> None:
    await knows(path)
    assert path.mask.text(f"sent {VALUE}") == f"sent {SHOWN}"


@dataclass
class Streaming:
    """Says its words piece by piece; None is an attempt that broke off."""

    pieces: Sequence[str | None]

    async def stream(self, _prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        whole = ""
        for piece in self.pieces:
            whole = "" if piece is None else whole + piece
            yield Restarted(Attempt("fake", "overloaded", "later")) if piece is None else TextDelta(piece)
        yield said(whole)


async def streamed(*pieces: str | None) -> list[str]:
    leaks = Leaks()
    leaks.learn({VALUE: SHOWN})
    model = CleanModel(cast(Model, Streaming(pieces)), lambda text: leaks.clean(text)[0], leaks)
    return [event.text async for event in model.stream(Prompt(())) if isinstance(event, TextDelta | Reply)]


async def test_closing_in_the_middle_of_an_answer_closes_the_models_stream() -> None:
    inner = ScriptedModel([[TextDelta("Hello"), TextDelta(" you")]])
    async with aclosing(CleanModel(inner, str, Leaks()).stream(Prompt(()))) as events:
        assert await anext(events) == TextDelta("Hello")
        assert inner.closed == 0
    assert inner.closed == 1


async def test_a_secret_that_is_split_over_deltas_is_in_none() -> None:
    assert await streamed("The key is hu", "sh-hu", "sh-hush", ". Bye") == [
        "The key is ",
        SHOWN,
        ". Bye",
        f"The key is {SHOWN}. Bye",
    ]


async def test_what_was_no_secret_after_all_comes_with_the_next_delta_or_the_end() -> None:
    assert await streamed("hu", "rry, hush") == ["hurry, ", "hush", "hurry, hush"]


async def test_what_an_attempt_held_back_is_void_when_it_breaks_off() -> None:
    assert await streamed("I say hush-", None, "Good day") == ["I say ", "Good day", "Good day"]


async def test_no_viewer_is_sent_the_first_half_of_a_secret(path: MessagePath) -> None:
    await knows(path)
    path.model.stream = Streaming(["It is hush-hush", "-hush, he says"]).stream
    accepted = await path.tell("say it")
    with path.live.subscribe(accepted.session_id) as seen:
        async with path.working():
            assert (await path.answer(accepted)).text == f"It is {SHOWN}, he says"
        texts = [each.text for each in seen.ready() if isinstance(each, TextWritten)]
    assert texts[0] == "It is "
    assert "".join(texts) == f"It is {SHOWN}, he says"
