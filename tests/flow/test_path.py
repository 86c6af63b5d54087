"""From a message to its answer."""

from tests.flow.path import MessagePath


async def test_a_message_is_answered_once(path: MessagePath) -> None:
    async with path.working():
        await path.say("hello")
        assert await path.channel.until(bool) == ["re: hello"]
        await path.outbound.drain(5)
    assert path.channel.texts == ["re: hello"]


async def test_a_command_is_answered_without_the_model(path: MessagePath) -> None:
    async with path.working():
        await path.say("/ping")
        [reply] = await path.channel.until(bool)
    assert reply.startswith("pong · ")
    assert path.model.prompts == []
