"""A tool that acts asks a question: kill -9 while it waits costs nothing, and the server acts once."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from tests.fakes.mcp_server import FakeMcp, asking, text
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured
from tests.journeys.test_approvals import says

NAME = {"name": {"type": "string"}}


class Booking:
    """A tool that asks for a name, then books."""

    def __init__(self) -> None:
        self.server = FakeMcp()
        self.server.add("book", "Books a table.", handler=self)
        self.booked = list[str]()
        self.busy = asyncio.Event()
        self.slow = False

    async def __call__(self, _arguments: dict[str, Any]) -> Any:
        if (responses := self.server.responses[-1]) is None:
            return asking("For whom?", NAME)
        self.booked.append(responses["q"].content["name"])
        self.busy.set()
        if self.slow:
            await asyncio.sleep(30)
        return text("booked")


@pytest.fixture
async def booking(process: GatewayProcess, telegram: FakeTelegram, models: FakeModels) -> AsyncIterator[Booking]:
    """The owner's message has the agent call the tool, whose question is shown."""
    booking = Booking()
    models.rules = [Rule("book it", tool_calls=(Call("mcp_w_book", {"city": "Rome"}),))]
    async with booking.server.running():
        tools = {"mcp": {"w": {"url": booking.server.url}}}
        process.configure(configured(telegram, models, tools=tools, net={"private_allow": [booking.server.place]}))
        await process.start()
        tested = await process.command("tools", "test")
        assert tested.code == 0, tested.told
        assert (await process.command("tools", "confirm", "mcp_w_book", "--class", "write", "--yes")).code == 0
        telegram.say("book it mk1x", OWNER)
        await telegram.wait_for(partial(says, "For whom?"))
        yield booking


async def test_an_act_that_waits_for_an_answer_goes_on_after_a_kill(
    process: GatewayProcess, telegram: FakeTelegram, booking: Booking
) -> None:
    await process.kill()
    await process.start()
    telegram.say("/approve A1 Ada", OWNER)
    await telegram.wait_for(partial(says, "fin1x"))
    assert booking.booked == ["Ada"]
    assert [len(booking.server.called), booking.server.responses[0]] == [2, None]
    assert [row["state"] for row in await process.rows("select state from reviews")] == ["approved"]


async def test_an_act_that_had_its_answer_never_runs_again(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, booking: Booking
) -> None:
    booking.slow = True
    telegram.say("/approve A1 Ada", OWNER)
    await asyncio.wait_for(booking.busy.wait(), 30)
    await process.kill()
    await process.start()
    await telegram.wait_for(partial(says, "fin1x"))
    assert booking.booked == ["Ada"]
    assert "may_have_run" in str(models.bodies[-1])
