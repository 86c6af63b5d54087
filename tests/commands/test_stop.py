from tests.flow.path import MEMBER, MessagePath


async def test_without_a_turn_there_is_nothing_to_stop(path: MessagePath) -> None:
    assert await path.ask("/stop") == "Nothing is running."


async def test_it_stops_what_waits_here_and_nowhere_else(path: MessagePath) -> None:
    mine = await path.tell("mine")
    other = await path.tell("other", chat=MEMBER, sender=MEMBER)
    assert await path.ask("/stop") == "Stopped."
    async with path.working():
        assert (await path.answer(mine)).text == "Stopped."
        assert (await path.answer(other)).text == "re: other"
        assert await path.ask("/stop") == "Nothing is running."


async def test_what_was_said_stays_in_the_session(path: MessagePath) -> None:
    before = await path.tell("one")
    await path.tell("/stop")
    async with path.working():
        after = await path.tell("two")
        await path.answer(after)
    assert before.session_id == after.session_id
