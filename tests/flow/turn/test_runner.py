"""How a turn ends when no model answers, and how often it asks the database."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

import pytest
from asyncpg.connection import LoggedQuery

from gateway.agent.limits import Limits
from gateway.background import worker
from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.model import Attempt, ModelsExhausted
from gateway.domain.ids import MessageId
from gateway.domain.principals import Label
from gateway.flow.outbound import sender
from gateway.flow.turn.opening import ChatOpening
from gateway.store.connection.pool import Connection, Database
from tests.flow.path import OWNER, MessagePath, call, in_turn, message, said


async def test_a_notice_is_trusted_as_the_conversation_is(path: MessagePath) -> None:
    path.model.answer = lambda _: ModelsExhausted("no", (Attempt("fake", "auth", "no key"),))
    await path.tell("hello")
    opened = await path.database.run(ChatOpening(run=await path.claim()).open)
    assert opened is not None
    result = await path.turn_runner.answer(await path.turn_runner.begin(opened))
    assert (result.error, result.label) == ("no model answered", Label.OWNER)


async def test_a_message_of_the_past_costs_a_turn_few_calls(path: MessagePath) -> None:
    """Each prompt has all of a conversation, so whatever is done for a message is done hundreds of times a turn."""
    await path.tell("hello")
    opened = await path.database.run(ChatOpening(run=await path.claim()).open)
    assert opened is not None
    [asked] = opened.transcript
    past = (
        replace(asked, id=MessageId(-1), answered_by=MessageId(-2)),
        replace(asked, id=MessageId(-2), kind="assistant"),
    )

    async def calls(rounds: int) -> int:
        called = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal called
            called += event == "call"

        turn = await path.turn_runner.begin(replace(opened, transcript=(*past * rounds, asked)))
        sys.setprofile(count)
        try:
            await path.turn_runner.answer(turn)
        finally:
            sys.setprofile(None)
        return called

    _, before = [await calls(0) for _ in range(2)]
    assert (await calls(100) - before) / 200 <= 18
    assert len(path.model.prompts[-1].messages) == 202


@dataclass
class Statements:
    """Everything that is sent to the database, in order; nothing is sent by the clock."""

    asked: list[str] = field(default_factory=list)
    held: int = 0

    def note(self, query: LoggedQuery) -> None:
        """Note it, but for what asyncpg asks once a connection about types."""
        if "typeinfo_tree" not in query.query and "'jit'" not in query.query:
            self.asked.append(" ".join(query.query.split())[:80])

    async def settled(self, path: MessagePath) -> None:
        """Wait until the turn is over, its answer is sent, and nobody asks any more."""
        while path.worker.running or path.signals.tasks.is_set() or self.held:
            await path.worker.settle()
            await asyncio.sleep(0.01)
        await path.outbound.drain(60)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    overheard = Statements()
    held = Database._held

    @asynccontextmanager
    async def hold(database: Database) -> AsyncIterator[Connection]:
        overheard.held += 1
        try:
            async with held(database) as connection:
                with connection.query_logger(overheard.note):
                    yield connection
        finally:
            overheard.held -= 1

    monkeypatch.setattr(Database, "_held", hold)
    monkeypatch.setattr(worker, "POLL_SECONDS", 3600)
    monkeypatch.setattr(sender, "POLL_SECONDS", 3600)
    return overheard


async def written(path: MessagePath) -> int:
    """The number of transactions and savepoints that have written so far; reading it writes nothing."""
    [(upto,)] = await path.rows("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    return int(upto)


SAVEPOINTS = 1
"""Of a turn: its claim opens the chat in one."""
CHAT, PAGE = Address("fake", "bot", OWNER), Address("web", "owner", "main")


@pytest.mark.parametrize(
    ("at", "calls", "most", "commits"),
    [(CHAT, 0, 10, 6), (PAGE, 0, 8, 4), (CHAT, 1, 15, 9)],
    ids=["in a messenger", "on the page", "with a tool call"],
)
async def test_a_turn_takes_few_statements_and_commits(
    path: MessagePath, statements: Statements, at: Address, calls: int, most: int, commits: int
) -> None:
    """Besides, the journal reads twice, and a search by meaning takes two more."""
    path.current.bounds = Limits(day_usd=1.0)

    async def turn() -> tuple[list[str], int]:
        path.model.answer = in_turn(*[said("", call("list_files"))] * calls, said("done"))
        before, statements.asked = await written(path), []
        await path.inbound.accept([replace(message("Where is the large red teapot?"), address=at)])
        await path.model.called.wait()
        await statements.settled(path)
        path.model.called.clear()
        return list(statements.asked), await written(path) - before - SAVEPOINTS

    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(loop()) for loop in (path.worker.run, path.outbound.run)]
        asked, wrote = [await turn() for _ in range(3)][-1]
        for loop in loops:
            loop.cancel()
    assert len(path.model.prompts) == 3 * (1 + calls)
    assert len(asked) <= most, asked
    assert wrote <= commits, asked
