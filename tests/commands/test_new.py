from gateway.domain.conversation.inbound import Address
from gateway.store.delivery import addresses
from gateway.store.transcript import journals
from tests.flow.path import MessagePath


async def test_it_starts_a_session_that_is_told_of_the_old_one_only_what_memory_tells(path: MessagePath) -> None:
    async with path.working():
        await path.ask("my name is Ada")
        reply = await path.ask("/new")
        await path.ask("what is my name?")
    assert reply.startswith("New session started (")
    assert "unanswered" not in reply
    system, *conversation = path.model.prompts[1].messages
    assert "my name is Ada" not in repr(conversation)
    assert "): the user: my name is Ada; the agent: re: my name is Ada\n" in f"{system.text}\n"


async def test_it_says_how_many_messages_it_leaves_unanswered(path: MessagePath) -> None:
    _, reply = await path.say("one", "/new")
    assert (await path.answer(reply)).text.endswith(" 1 unanswered message from the old one won't be answered.")
    *_, reply = await path.say("one", "two", "/new")
    assert (await path.answer(reply)).text.endswith(" 2 unanswered messages from the old one won't be answered.")


async def test_whoever_shares_the_session_moves_along(path: MessagePath) -> None:
    first = await path.tell("hello")
    second = Address("web", "", "1")
    assert first.session_id is not None
    async with path.database.transaction() as tx:
        await addresses.add(tx, second, path.people.owner.id, first.session_id, private=True)
    await path.tell("/new")
    [(sessions,)] = await path.rows("select count(distinct session_id) from addresses")
    assert sessions == 1


async def test_it_can_be_the_first_word(path: MessagePath) -> None:
    assert (await path.ask("/new")).startswith("New session started (")


async def test_it_closes_the_journal_with_what_the_session_was_about(path: MessagePath) -> None:
    async with path.working():
        first = await path.tell("my name\nis Ada")
        await path.answer(first)
        assert first.session_id is not None
        async with path.database.transaction() as tx:
            open_already = await journals.open_for(tx, first.session_id)
            if open_already is None:
                await journals.begin(tx, first.session_id, path.people.owner.id, "sessions/2026-03-01/00-00-00.md")
        await path.ask("/new")
    closed = await path.rows(
        "select summary from journals where session_id = $1 and closed_at is not null", first.session_id
    )
    assert closed == [("my name is Ada (2 messages)\n→ re: my name is Ada",)]
