from tests.flow.path import MessagePath


async def test_it_shows_the_last_answer_once_more(path: MessagePath) -> None:
    async with path.working():
        assert await path.ask("/last") == "There is no answer in this session yet."
        await path.ask("one")
        await path.ask("two")
        assert [await path.ask("/last") for _ in range(2)] == ["re: two"] * 2
        await path.ask("/new")
        assert await path.ask("/last") == "There is no answer in this session yet."
    assert path.model.answered == ["one", "two"]
