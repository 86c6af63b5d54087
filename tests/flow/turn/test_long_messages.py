import re

from tests.flow.path import MessagePath, asked, call, in_turn, said

LONG = "word " * 30_000


async def test_a_message_too_long_to_read_at_once_becomes_a_file(path: MessagePath) -> None:
    async with path.working():
        await path.ask(f"{LONG}the end")
        await path.ask("and now?")
    [(id,)] = await path.rows("select min(id) from messages")
    where = f"uploads/message-{id}.txt"
    assert (path.workspace / where).read_text() == f"{LONG}the end"
    for prompt in path.model.prompts:
        told = next(m.text for m in prompt.messages if re.match(r"\[\w{3} 20", m.text))
        assert f"the whole message, {len(LONG) + 7:,} characters, is in {where}" in told
        assert len(told) < 4_000
    assert ("user", f"{LONG}the end") in await path.transcript()


async def test_the_same_message_is_written_once(path: MessagePath) -> None:
    async with path.working():
        await path.ask(LONG)
        [file] = (path.workspace / "uploads").iterdir()
        file.write_text("changed by the agent")
        await path.ask("and now?")
    assert file.read_text() == "changed by the agent"


async def test_a_message_of_ordinary_length_stays_as_it_is(path: MessagePath) -> None:
    text = "word " * 5_000
    async with path.working():
        await path.ask(text)
    assert len(asked(path.model.prompts[0])) == len(text)
    assert not (path.workspace / "uploads").exists()


async def test_one_that_cannot_be_stored_says_so(path: MessagePath) -> None:
    (path.workspace / "uploads").write_text("in the way")
    async with path.working():
        await path.ask(LONG)
    assert "could not be stored" in asked(path.model.prompts[0])


async def test_a_long_message_that_joins_a_turn_is_shortened_too(path: MessagePath) -> None:
    path.model.answer = in_turn(said("", call("look", text="x")), said("done"))

    async def interrupt() -> None:
        await path.tell(LONG)

    path.workshop.during = interrupt
    async with path.working():
        await path.ask("go")
    assert "is in uploads/message-" in asked(path.model.prompts[1])
