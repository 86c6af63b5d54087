"""A gateway, a standby and a worker: each runs every kind of task and hears every notification, and logs no error."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from gateway.app.process import CHANNELS
from gateway.background import jobs
from gateway.background.worker import AGENT_KINDS, CHANNEL_KINDS
from gateway.config.machine import SystemClock
from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.ids import EntryId, InstanceId, TaskId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Assignment, Lane
from gateway.flow.labels import ask_to_vouch
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses
from gateway.store.people import principals
from gateway.store.transcript import sessions, unread
from gateway.store.work import tasks
from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import GatewayProcess, configured, until

pytestmark = pytest.mark.thorough

KINDS = frozenset(path.stem for path in Path(jobs.__file__).parent.glob("[a-z]*.py"))
WHOSE: Any = {"private": True, "as_owner": True}
EXPECTED = {
    "heartbeat.nobody_to_tell",
    "loop.blocked",
    "notification.malformed",
    "workspace.elsewhere",
    "members.no_login",
}
"""Warnings that belong to these processes."""


@dataclass(frozen=True)
class Processes:
    gateway: GatewayProcess
    worker: GatewayProcess
    standby: GatewayProcess
    database: Database

    def instance(self, name: str) -> InstanceId:
        homes = {"gateway": self.gateway.data, "standby": self.standby.data, "worker": self.gateway.data / "workers/1"}
        return InstanceId(UUID((homes[name] / "instance").read_text().strip()))

    def problems(self) -> list[tuple[str, ...]]:
        """All that the logs say beyond information."""
        files = [
            file for home in (self.gateway.data, self.standby.data) for file in home.rglob("logs/*") if file.is_file()
        ]
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert lines, "the logs are elsewhere"
        loud = [each for each in lines if each["level"] not in ("info", "debug") and each["event"] not in EXPECTED]
        return sorted(
            {(each["event"], str(each.get("error", "")), str(each.get("exception", ""))[-300:]) for each in loud}
        )


@pytest.fixture
async def processes(tmp_path: Path, dsn: str, telegram: FakeTelegram, models: FakeModels) -> AsyncIterator[Processes]:
    gateway, standby = GatewayProcess(tmp_path / "first", dsn), GatewayProcess(tmp_path / "second", dsn)
    for each in (gateway, standby):
        each.home.mkdir()
        each.configure(configured(telegram, models))
        await each.start()
    worker = replace(gateway, told=[], subcommand="worker")
    try:
        await worker.start()
        async with await Database.connect(dsn) as database:
            yield Processes(gateway, worker, standby, database)
    finally:
        for each in (worker, standby, gateway):
            await each.close()


async def queued(tx: Connection, kind: str, instance: InstanceId) -> TaskId:
    """A task of this kind that this instance has to run."""
    owner = await principals.owner(tx)
    assert owner is not None
    payload: dict[str, Any] = {}
    session, lane = None, Lane.AGENTS
    if kind in ("agent", "heartbeat", "summarise"):
        session = await sessions.start(tx, owner.id, Label.OWNER, unattended=True)
    match kind:
        case "agent":
            assignment = Assignment(prompt="work", name="test", origin="task", deliver=False)
            payload = assignment.model_dump(mode="json")
        case "heartbeat":
            payload = {"at": datetime.now(UTC).isoformat()}
        case "summarise":
            payload, session = {"session": str(session)}, None
        case "describe":
            payload = {"file": str(uuid4())}
        case "approval":
            await ask_to_vouch(tx, owner.id, {f"{instance}.md": str(uuid4())}, SystemClock())
            review = await tx.fetchval("update reviews set state = 'denied' where state = 'open' returning id")
            payload = {"review": review}
        case "chat" | "ingest":
            session = await sessions.start(tx, owner.id, Label.OWNER)
            place = Address("web", "owner", str(uuid4()))
            await addresses.add(tx, place, owner.id, session, private=True)
            at = await addresses.find(tx, place)
            assert at is not None
            said = Inbound(place, Sender("owner", "Ada"), "hello mk1x", str(uuid4()), datetime.now(UTC), **WHOSE)
            message = await unread.receive(tx, session, owner.id, at.id, said, Label.OWNER, EntryId(uuid4()))
            lane = Lane.CHAT if kind == "chat" else Lane.FILES
            payload, session = {"message": message}, session if kind == "chat" else None
    task = await tasks.create(
        tx, owner.id, kind, lane, payload=payload, session=session, instance=instance, agent="main"
    )
    assert task is not None
    return task


async def statuses(processes: Processes, ids: Sequence[TaskId]) -> list[tuple[str, ...]]:
    """Who ran each task, and what became of it."""
    async with processes.database.connection() as conn:
        rows = await conn.fetch("select kind, status, attempts::text, error from tasks where id = any($1)", ids)
    return [tuple(row) for row in rows]


def kinds_of(name: str) -> frozenset[str]:
    """The standby gateway has no workspace."""
    return {"gateway": KINDS, "worker": KINDS - CHANNEL_KINDS, "standby": KINDS - AGENT_KINDS}[name]


async def test_every_kind_of_task_and_every_notification_in_every_kind_of_process(processes: Processes) -> None:
    database = processes.database
    ids = [
        await database.run(partial(queued, kind=kind, instance=processes.instance(name)))
        for name in ("gateway", "worker", "standby")
        for kind in kinds_of(name)
    ]
    listeners = "select pid from pg_stat_activity where application_name = 'supaclaw listener' order by pid"
    before = await processes.gateway.rows(listeners)
    for channel in (*CHANNELS, "supaclaw:task:1"):
        for payload in ("", "anything", str(uuid4())):
            await processes.gateway.rows("select pg_notify($1, $2)", channel, payload)

    async def over() -> bool:
        return all(status not in ("pending", "running") for _, status, *_ in await statuses(processes, ids))

    try:
        await until(over)
    except TimeoutError:
        raise AssertionError(await statuses(processes, ids)) from None
    assert processes.problems() == []
    assert {(status, attempts) for _, status, attempts, _ in await statuses(processes, ids)} == {("completed", "1")}
    assert len(before) == 3
    assert await processes.gateway.rows(listeners) == before


async def test_a_cancel_reaches_a_call_on_a_worker_before_any_poll(processes: Processes, models: FakeModels) -> None:
    models.rules.append(Rule("work", hang=True))
    task = await processes.database.run(lambda tx: queued(tx, "agent", processes.instance("worker")))
    lease = "select lease_until from tasks where id = $1"

    async def renewed() -> bool:
        return bool(await processes.gateway.rows(lease, task) != first)

    await until(lambda: running(processes, task))
    first: list[Any] = await processes.gateway.rows(lease, task)
    await until(renewed)  # so the next poll is five seconds away
    async with processes.standby.http() as client:
        assert (await client.post(f"/api/tasks/{task}/cancel")).is_success
    async with asyncio.timeout(2.5):
        await models.dropped.wait()
    assert processes.problems() == []


async def running(processes: Processes, task: TaskId) -> bool:
    [(_, status, *_)] = await statuses(processes, [task])
    return status == "running"
