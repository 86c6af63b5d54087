"""Traces while they grow: told by another process, in order, none missed; what a node did as references."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from gateway.domain.ids import TaskId
from gateway.domain.work.tasks import Status
from gateway.flow.trees import control
from gateway.flow.trees.control import TraceFollowers
from gateway.store.connection.listener import Listener
from gateway.store.work import steps
from gateway.store.work.steps import CommittedSteps
from tests.flow.path import MessagePath, call, results, said
from tests.flow.trees.test_trees import boss_and_workers, run_dry, started, write
from tests.store.world import somebody


@pytest.fixture
async def other(path: MessagePath, dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TraceFollowers]:
    """Those of another process, that hears and never polls."""
    monkeypatch.setattr(control, "POLL_SECONDS", 3600.0)
    followers = TraceFollowers(path.database, somebody())
    ready = asyncio.Event()

    def heard(channel: str, _payload: str) -> None:
        followers.heard(channel)

    listener = Listener(dsn, (), heard, ready.set, subscriptions=followers.subscriptions)
    task = asyncio.create_task(listener.run())
    await ready.wait()
    yield followers
    task.cancel()


async def test_a_tree_is_followed_from_another_process_to_its_end(path: MessagePath, other: TraceFollowers) -> None:
    write(path.workspace, "boss")
    write(path.workspace, "worker")
    tree = TaskId(await started(path, boss_and_workers))  # type: ignore[arg-type]
    seen, states, begun = list[int](), list[dict[Status, int]](), asyncio.Event()

    async def follow() -> None:
        async with aclosing(other.follow(tree, tree=True)) as progress:
            async for each in progress:
                begun.set()
                seen.extend(step.id for step in each.steps)
                states.append(dict(each.counts))

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(follow())
        await begun.wait()
        await run_dry(path)
    [[*kinds]] = [[row for (row,) in await path.rows("select kind from task_steps where id = any($1)", seen)]]
    assert (states[0], states[-1]) == ({Status.PENDING: 1}, {Status.COMPLETED: 4})
    assert seen == sorted(set(seen)), "each once, in order"
    assert (
        len(seen)
        == (
            await path.rows(
                "select count(*) from task_steps s join tasks t on t.id = s.task_id where t.master_id = $1", tree
            )
        )[0][0]
    )
    assert (kinds.count("model"), kinds.count("intent"), kinds.count("tool")) == (5, 1, 1)

    async with path.database.connection() as conn:
        rest = await steps.trace(conn, tree, tree=True, since=seen[2])
    assert [step.id for step in rest] == seen[3:], "it goes on behind any step"


async def test_nothing_is_notified_unless_somebody_follows(path: MessagePath, dsn: str) -> None:
    write(path.workspace, "boss")
    write(path.workspace, "worker")
    tree = await started(path, boss_and_workers)
    told = list[str]()
    ready = asyncio.Event()
    channels = (f"supaclaw:task:{tree}", f"supaclaw:master:{tree}", "last")
    listener = Listener(dsn, channels, lambda channel, _: told.append(channel), ready.set)
    task = asyncio.create_task(listener.run())
    await ready.wait()
    await run_dry(path)
    async with asyncio.timeout(30):
        while not told:
            await path.rows("select pg_notify('last', '')")
            await asyncio.sleep(0.02)
    task.cancel()
    assert set(told) == {"last"}


async def test_steps_refer_and_never_say(path: MessagePath) -> None:
    write(path.workspace, "boss")

    def node(prompt: object) -> object:
        if not results(prompt):  # type: ignore[arg-type]
            return said("", call("save_intermediate_data", data={"pin": "hush-4711"}), call("handoff", agent="nobody"))
        return said("hush-4711 it is")

    tree = await started(path, node)  # type: ignore[arg-type]
    await run_dry(path)
    rows = await path.rows("select * from task_steps where task_id = $1 order by id", tree)
    assert "hush-4711" not in str(rows)
    async with path.database.connection() as conn:
        trace = await steps.trace(conn, TaskId(tree))  # type: ignore[arg-type]
    shown = [(step.kind, step.name, step.ok) for step in trace]
    assert shown == [
        ("model", "fake", None),
        ("intent", "save_intermediate_data", None),
        ("intent", "handoff", None),
        ("tool", "save_intermediate_data", True),
        ("tool", "handoff", False),
        ("model", "fake", None),
    ]
    referred = await path.rows(
        "select kind from messages where id = any($1) order by id", [s.message_id for s in trace]
    )
    assert [kind for (kind,) in referred] == ["tool_intent", "tool_intent", "tool_result", "tool_result", "assistant"]


async def test_what_may_still_come_before_it_holds_a_step_back(path: MessagePath) -> None:
    settled = CommittedSteps()
    async with path.database.connection() as conn, path.database.transaction() as slow:
        await slow.execute("create temporary table slow ()")
        assert await settled.look(conn) is True or settled.upto >= 0
        await conn.execute("select nextval('task_steps_id_seq'), nextval('task_steps_id_seq')")
        before = settled.upto
        assert await settled.look(conn) is False
        assert settled.upto == before, "a transaction of before may have taken a number"
    async with path.database.connection() as conn:
        assert await settled.look(conn)
        assert settled.upto == await conn.fetchval("select last_value from task_steps_id_seq")
