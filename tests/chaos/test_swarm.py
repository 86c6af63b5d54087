"""Trees of 106 tasks on two workers, of which one is killed, frozen beyond its lease or cut off at random moments."""

import asyncio
import json
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import prod
from pathlib import Path

import pytest

from gateway.agent.work import task_trees
from gateway.agent.work.approvals import settle_review
from gateway.agent.work.task_trees import TreeRequest
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.work.trees import DoubtAnswer
from gateway.store.connection.pool import Connection, Database
from gateway.store.trust import reviews
from gateway.store.trust.reviews import DOUBT
from tests.chaos.conftest import FULL
from tests.chaos.swarm import LEASE_SECONDS, SHAPE
from tests.flow.path import FakeModel, build

RUNS = int(os.environ.get("SUPACLAW_CHAOS_TREES", "50" if FULL else "1"))
"""How many random trees; 1,000 take an afternoon."""
LEAVES, TASKS = prod(SHAPE), 1 + sum(prod(SHAPE[:depth]) for depth in range(1, len(SHAPE) + 1))
WITHIN = 180.0
FAULTS_AT_MOST = 3


@dataclass
class Swarm:
    """Two workers on one database."""

    database: Database
    command: tuple[str, ...]
    chance: random.Random
    workers: list[Process] = field(default_factory=list)

    async def start(self) -> None:
        process = await asyncio.create_subprocess_exec(*self.command, stdout=PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline(), "it started"
        self.workers.append(process)

    async def kill(self) -> None:
        victim = self.workers.pop(self.chance.randrange(2))
        victim.kill()
        await victim.wait()
        await self.start()

    async def freeze(self) -> None:
        victim = self.chance.choice(self.workers)
        victim.send_signal(signal.SIGSTOP)
        await asyncio.sleep(LEASE_SECONDS * self.chance.uniform(1.2, 2.5))
        victim.send_signal(signal.SIGCONT)

    async def cut(self) -> None:
        """Some of the connections of all are dropped."""
        await self.rows(
            """select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid() and random() < 0.5"""
        )

    async def rows(self, question: str) -> list[tuple[object, ...]]:
        while True:
            try:
                async with self.database.connection() as conn:
                    return [tuple(row) for row in await conn.fetch(question)]
            except Exception as error:  # our own connection may be among those dropped
                if "terminat" not in str(error) and "closed" not in str(error):
                    raise

    async def over(self, person: PrincipalId, ledger: Path) -> None:
        async with asyncio.timeout(WITHIN):
            while True:
                if not await self.rows("select from tasks where parent_id is null and status <> 'completed'"):
                    return
                with suppress(TryAgainLater):
                    await self.database.run(lambda tx: answer(tx, person, ledger.read_text().split()))
                await asyncio.sleep(0.2)

    async def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            await worker.wait()


async def answer(tx: Connection, person: PrincipalId, acts: Sequence[str]) -> None:
    """Whoever is asked whether a call took effect looks there, and lets it run again if it didn't."""
    now = datetime.now(UTC)
    for row in await reviews.list_open(tx, person, now):
        assert row.tool == DOUBT
        ran = json.loads(str(row.arguments["arguments"]))["text"] in acts
        await settle_review(tx, person, row.name, now, yes=not ran, by="test", comment=DoubtAnswer.RAN if ran else "")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return workspace


@pytest.mark.parametrize("number", range(RUNS))
async def test_nothing_is_lost_and_no_act_happens_twice(
    database: Database, dsn: str, workspace: Path, chance: random.Random, number: int
) -> None:
    path, ledger = await build(database, workspace, FakeModel()), workspace.parent / "ledger"
    ledger.touch()
    swarm = Swarm(database, (sys.executable, "-m", "tests.chaos.swarm", dsn, str(workspace), str(ledger)), chance)
    try:
        for _ in range(2):
            await swarm.start()
        async with database.transaction() as tx:
            request = TreeRequest(
                "main", "0", Label.OWNER, None, private=True, deliver=False, most_live=None, shared=None
            )
            await task_trees.start(tx, path.people.owner.id, request)
        for fault in chance.choices([swarm.kill, swarm.freeze, swarm.cut], k=chance.randint(1, FAULTS_AT_MOST)):
            await asyncio.sleep(chance.uniform(0.1, 2.5))
            print(number, fault.__name__)
            await fault()
        await swarm.over(path.people.owner.id, ledger)
    finally:
        await swarm.close()

    acts = Counter(ledger.read_text().split())
    assert await swarm.rows("select status, count(*) from tasks where kind = 'agent' group by 1") == [
        ("completed", TASKS)
    ]
    assert await swarm.rows("select output ->> 'result' from tasks where parent_id is null") == [(str(LEAVES),)]
    assert (len(acts), {*acts.values()}) == (LEAVES, {1})
    assert (
        await swarm.rows(
            """select task_id, ordinal from messages where kind = 'tool_result'
           group by 1, 2 having count(*) > 1"""
        )
        == []
    )
