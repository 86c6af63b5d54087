"""A live secret that somebody or something brings in reaches neither the model nor a chat."""

import base64

from gateway.domain.model import ToolCall
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
