"""A process that was stopped in the middle of a run, and wakes when somebody else has done its work."""

import asyncio
import signal
import sys

from gateway.domain.work.tasks import Status
from gateway.store.work import tasks
from tests.store.world import World, somebody

SLEEPER = """
import asyncio, sys
from uuid import uuid4
from gateway.domain.errors import RunLost
from gateway.domain.work.tasks import Lane, Status
from gateway.store.work import tasks
from gateway.store.connection.pool import Database

async def main():
    async with await Database.connect(sys.argv[1]) as database:
        async with database.connection() as conn:
            [run] = await tasks.claim(conn, uuid4(), {Lane.AGENTS: 1})
        print("claimed", flush=True)
        sys.stdin.readline()
        try:
            async with database.transaction() as tx:
                await tasks.finish(tx, run, Status.FAILED, error="written by a zombie")
        except RunLost as lost:
            print(f"lost: {lost}", flush=True)

asyncio.run(main())
"""


async def test_a_process_that_wakes_too_late_writes_nothing(world: World, dsn: str) -> None:
    task = await world.queue()
    pipe = asyncio.subprocess.PIPE
    sleeper = await asyncio.create_subprocess_exec(sys.executable, "-c", SLEEPER, dsn, stdin=pipe, stdout=pipe)
    assert sleeper.stdin is not None
    assert sleeper.stdout is not None
    assert await sleeper.stdout.readline() == b"claimed\n"
    sleeper.send_signal(signal.SIGSTOP)
    try:
        sleeper.stdin.write(b"go\n")
        await world.do("update tasks set lease_until = now() - interval '1 s'")
        async with world.database.connection() as conn:
            assert await tasks.recover(conn) == 1
        await world.do("update tasks set run_at = now()")
        [run] = await world.claim(somebody())
        async with world.database.transaction() as tx:
            await tasks.finish(tx, run, Status.COMPLETED)
    finally:
        sleeper.send_signal(signal.SIGCONT)
    out, _ = await sleeper.communicate()
    assert out.decode().startswith("lost: run lost")
    assert await world.status(task) is Status.COMPLETED
    assert await world.value("select error from tasks") is None
