"""A worker of a tree of 106 tasks, in a process of its own: `python -m tests.chaos.swarm DSN WORKSPACE LEDGER`.

The agents, the turns, the fence and the engine are the real ones, the model answers by rules, and each leaf has one act
outside: a line in the ledger. The lease is short, so that the test need not wait half a minute for one to expire.
"""

import asyncio
import os
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import structlog
from structlog.testing import LogCapture

from gateway.domain.conversation.model import Prompt, Reply
from gateway.domain.conversation.tools import AnyTool, Caller, Effect, Labelled, Tool, ToolClass
from gateway.store.connection.pool import Database
from gateway.store.work import tasks
from gateway.tools import Services
from tests.flow.path import FakeModel, build, call, results, said
from tests.flow.trees.test_trees import is_node, subtasks, task_of
from tests.flow.workshop import Word

LEASE_SECONDS, BEAT_SECONDS, LONGEST_ACT = 2.0, 0.4, 1.0
SHAPE = (5, 5, 3)
"""How many children a task has on each level: 1 + 5 + 25 + 75 are 106 tasks."""


def answer(prompt: Prompt) -> Reply:
    """A task is named by its way from the root; a leaf acts, all others split and add up."""
    assert is_node(prompt)
    place, done = task_of(prompt), results(prompt)
    depth = place.count(".")
    if depth < len(SHAPE):
        if not done:
            return subtasks(*[("main", f"{place}.{n}") for n in range(SHAPE[depth])])
        return said(str(sum(int(child["result"]) for child in done[0]["results"])))
    return said("1") if done else said("", call("act", text=place))


def family(ledger: Path) -> tuple[AnyTool, ...]:
    """One append is one act: no kill can split it."""

    async def act(word: Word, _caller: Caller) -> Labelled:
        with ledger.open("a") as file:
            file.write(f"{word.text}\n")
        await asyncio.sleep(0.02)  # in which a kill leaves an act without its result
        return Labelled.own({"did": word.text})

    return (Tool("act", "Acts.", Word, act, Effect.ONCE, LONGEST_ACT, kind=ToolClass.READ),)


async def main(dsn: str, workspace: Path, ledger: Path) -> None:
    structlog.configure(processors=[LogCapture()])
    tasks.LEASE = timedelta(seconds=LEASE_SECONDS)

    def tools(_services: Services) -> tuple[AnyTool, ...]:
        return family(ledger)

    async with await Database.connect(dsn) as database:
        path = await build(database, workspace, FakeModel(answer), families=[tools])
        async with asyncio.TaskGroup() as group:
            group.create_task(path.worker.run())
            print(os.getpid(), flush=True)
            while True:
                await path.worker.beat()
                await asyncio.sleep(BEAT_SECONDS)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
