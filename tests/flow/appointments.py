"""Schedules that fire, and triggers that come in, for tests of what becomes of them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.agent.work.schedules import slot_assignment
from gateway.domain.ids import AddressId, PrincipalId, SessionId, TaskId
from gateway.domain.principals import Label
from gateway.domain.work.schedules import Once, Recurring, ScheduleDefinition
from gateway.domain.work.tasks import Assignment, Lane
from gateway.store.transcript import sessions
from gateway.store.work import schedules, tasks, triggers
from gateway.store.work.schedules import RunRow, ScheduleRow
from tests.flow.path import MessagePath

SLOT = datetime(2026, 11, 23, 7, 30, tzinfo=UTC)
"""In Berlin Monday, 8:30."""


async def plan(
    path: MessagePath,
    prompt: str = "Stretch!",
    *,
    name: str = "Stand-up",
    once: bool = False,
    history: bool = False,
    principal: PrincipalId | None = None,
    address: AddressId | None = None,
    label: Label = Label.OWNER,
) -> ScheduleRow:
    """A schedule that was asked for at the address."""
    when = Once(SLOT) if once else Recurring("30 8 * * *")
    definition = ScheduleDefinition(name, prompt, when, "Europe/Berlin", include_session_history=history)
    async with path.database.transaction() as tx:
        row = await schedules.add(
            tx,
            principal or path.people.owner.id,
            definition,
            next_run_at=SLOT,
            origin="fake",
            label=label,
            address=address,
        )
    assert row is not None
    return row


async def fire(path: MessagePath, row: ScheduleRow, days: int = 0) -> TaskId:
    """Its slot has come."""
    slot = SLOT + timedelta(days=days)
    async with path.database.transaction() as tx:
        task = await schedules.fire(tx, row, slot_assignment(row, slot, now=slot))
    assert task is not None
    return task


async def trigger(path: MessagePath, text: str = "disk full", *, source: str = "ci", **more: Any) -> TaskId:
    """Another program sends something; `name` is that of the conversation it belongs to."""
    named, owner = more.pop("name", None), path.people.owner.id
    order = Assignment(prompt=text, name=source, origin="trigger", label=Label.UNTRUSTED, **more)
    async with path.database.transaction() as tx:
        session = (
            await triggers.conversation(tx, owner, named, Label.UNTRUSTED)
            if named
            else await sessions.start(tx, owner, Label.UNTRUSTED, unattended=True)
        )
        task = await tasks.create(
            tx, owner, "agent", Lane.AGENTS, payload=order.model_dump(mode="json"), session=session
        )
        assert task is not None
        await triggers.add(tx, owner, source, task, account="token", key=None, digest="")
    return task


async def work(path: MessagePath) -> None:
    """Run the one task that waits."""
    await path.agent.run(await path.claim(Lane.AGENTS))


async def last_run(path: MessagePath, row: ScheduleRow) -> RunRow:
    """What became of its latest slot."""
    async with path.database.connection() as conn:
        return (await schedules.runs(conn, row.id))[0]


def noted(run: RunRow) -> list[str]:
    """How far it came, by name."""
    so_far = {
        "executed": run.executed_at,
        "produced": run.produced_at,
        "message": run.message_id,
        "delivered": run.delivered_at,
        "error": run.error,
    }
    return [name for name, value in so_far.items() if value is not None]


async def known(path: MessagePath, row: ScheduleRow) -> ScheduleRow:
    """How it stands now."""
    async with path.database.connection() as conn:
        found = await schedules.get(conn, None, str(row.id))
    assert found is not None
    return found


async def status(path: MessagePath, task: TaskId) -> str:
    [(found,)] = await path.rows("select status from tasks where id = $1", task)
    return str(found)


async def address_of(path: MessagePath, session: SessionId | None) -> AddressId:
    """The one that a session is current at."""
    [(found,)] = await path.rows("select id from addresses where session_id = $1", session)
    return AddressId(found)
