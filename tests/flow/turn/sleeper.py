"""A process that stops itself once it has stored its intent to act: `python -m tests.flow.turn.sleeper DSN WORKSPACE`.

It prints what its tool did, and then how its run ended.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from gateway.config.failpoints import Failpoints, Step
from gateway.domain.errors import RunLost
from gateway.store.connection.pool import Database
from tests.flow.path import FakeModel, build, call, in_turn, said

MARK = "seen"
"""What a line begins with that is not of the log."""


class Stopping(Failpoints):
    """SIGSTOP, as by `docker pause`, instead of death."""

    def reach(self, step: Step) -> None:
        if step is Step.STEP_COMMITTED:
            os.kill(os.getpid(), signal.SIGSTOP)


async def main(dsn: str, workspace: Path) -> None:
    model = FakeModel(in_turn(said("", call("send", text="a letter")), said("done")))
    async with await Database.connect(dsn) as database:
        path = await build(database, workspace, model, failpoints=Stopping(None))
        await path.tell("send it")
        try:
            await path.turns.run(await path.claim())
            ended = "answered"
        except RunLost:
            ended = "lost"
        print(MARK, *path.workshop.ran, ended, sep="|", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
