from gateway import commands
from tests.flow.path import MessagePath


async def test_it_lists_every_command_with_what_it_does(path: MessagePath) -> None:
    listed = (await path.ask("/help")).split("\n")
    assert listed[:-2] == [f"/{name}: {c.summary}" for name, c in sorted(commands.discover().items())]
    assert listed[-2:] == ["", "Anything else you write goes to the agent."]
