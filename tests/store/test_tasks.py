"""The engine, statement by statement."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from gateway.domain.errors import RunLost
from gateway.domain.ids import InstanceId, TaskId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Claim, Lane, Status
from gateway.store.connection.pool import Connection
from gateway.store.transcript import sessions
from gateway.store.work import instances, tasks, triggers
from gateway.store.work.tasks import LEASE
from tests.store.world import World, blocked, held, somebody

EXPIRED = "update tasks set lease_until = now() - interval '1 second' where id = $1"


async def running(world: World, **more: Any) -> Claim:
    await world.queue(**more)
    [run] = await world.claim(somebody())
    return run


async def finish(world: World, run: Claim, status: Status = Status.COMPLETED, error: str | None = None) -> None:
    async with world.database.transaction() as tx:
        await tasks.finish(tx, run, status, error=error)


async def cancel(world: World, root: TaskId) -> list[TaskId]:
    async with world.database.transaction() as tx:
        return await tasks.cancel(tx, root)


class TestClaim:
    async def test_takes_by_priority_then_time_then_age(self, world: World) -> None:
        late, first, second, urgent, future = [await world.queue() for _ in range(5)]
        await world.do("update tasks set run_at = now() - interval '1 minute' where id in ($1, $2)", first, second)
        await world.do("update tasks set priority = 1 where id = $1", urgent)
        await world.do("update tasks set run_at = now() + interval '1 hour' where id = $1", future)
        taken = [(await world.claim(somebody()))[0].id for _ in range(4)]
        assert taken == [urgent, first, second, late]
        assert await world.claim(somebody()) == []

    async def test_says_with_which_code_a_chat_could_not_be_opened(self, world: World) -> None:
        await world.ask("hello")
        me = somebody()
        await world.chat(me)
        async with world.database.transaction() as tx:
            await tx.execute("alter function take_unread rename to was_take_unread")
            with capture_logs() as logged:
                [run] = await tasks.claim(tx, me, {Lane.CHAT: 1})
            await tx.execute("alter function was_take_unread rename to take_unread")
        assert run.chat is None
        [told] = [event for event in logged if event["event"] == "claim.not_opened"]
        assert (told["task_id"], told["code"]) == (str(run.id), "42883")

    async def test_leases_the_run_and_raises_the_fence_and_the_count(self, world: World) -> None:
        task, worker = await world.queue(), somebody()
        [run] = await world.claim(worker)
        assert (run.id, run.token, run.attempts, run.max_attempts, run.kind) == (task, 1, 1, 3, "agent")
        assert run.principal_id == world.principal
        assert await world.value(
            "select worker = $2 and lease_until = updated_at + $3 from tasks where id = $1", task, worker, LEASE
        )

    async def test_takes_no_more_than_it_may(self, world: World) -> None:
        for _ in range(3):
            await world.queue()
        assert [len(await world.claim(somebody(), slots=2)) for _ in range(3)] == [2, 1, 0]

    async def test_lanes_do_not_see_each_other(self, world: World) -> None:
        await world.queue()
        assert await world.claim(somebody(), lane=Lane.CPU) == []
        assert len(await world.claim(somebody(), lane=Lane.AGENTS)) == 1

    async def test_several_lanes_are_claimed_at_once_each_within_its_own_limit(self, world: World) -> None:
        for lane in (Lane.AGENTS, Lane.FILES, Lane.CPU) * 3:
            await world.queue(lane=lane)
        async with world.database.connection() as conn:
            runs = await tasks.claim(conn, somebody(), {Lane.CHAT: 200, Lane.AGENTS: 2, Lane.FILES: 16})
        assert Counter(run.lane for run in runs) == {Lane.AGENTS: 2, Lane.FILES: 3}
        assert await world.value("select count(*) from tasks where status = 'running'") == 5

    async def test_workers_step_over_what_another_is_taking(self, world: World) -> None:
        first, second = await world.queue(), await world.queue()
        async with held(world.database, "select from claim($1, 'agents', 1, '30 s')", somebody()):
            [run] = await world.claim(somebody())
        assert run.id == second
        assert await world.status(first) is Status.RUNNING

    async def test_two_workers_never_share_a_task(self, world: World) -> None:
        for _ in range(40):
            await world.queue()
        claims = await asyncio.gather(*(world.claim(somebody(), slots=7) for _ in range(8)))
        taken = [run.id for runs in claims for run in runs]
        assert len(taken) == len(set(taken))
        assert await world.value("select count(*) from tasks where status = 'running'") == len(taken)


class TestInstances:
    async def chat_of(self, world: World, seconds: float) -> None:
        other = somebody()
        async with world.database.connection() as conn:
            assert await instances.take_lease(conn, "gateway", other, seconds)
        await world.chat(other)

    async def test_a_chat_is_left_to_the_living_instance_that_owns_it(self, world: World) -> None:
        await self.chat_of(world, 60)
        assert await world.claim(somebody(), lane=Lane.CHAT) == []

    async def test_its_owner_takes_it(self, world: World) -> None:
        owner = somebody()
        async with world.database.connection() as conn:
            await instances.take_lease(conn, "gateway", owner, 60)
        await world.chat(owner)
        [run] = await world.claim(owner, lane=Lane.CHAT)
        assert run.session_id == world.session

    async def test_anybody_takes_what_a_dead_instance_left(self, world: World) -> None:
        await self.chat_of(world, -1)
        [run] = await world.claim(somebody(), lane=Lane.CHAT)
        assert run.kind == "chat"

    async def test_one_without_a_lease_counts_as_dead(self, world: World) -> None:
        await world.chat(somebody())
        assert len(await world.claim(somebody(), lane=Lane.CHAT)) == 1


class TestFence:
    async def writes(self, world: World, run: Claim) -> list[str]:
        """Which writes of this run are let through."""
        passed = []
        writes: dict[str, Callable[[Connection], Awaitable[None]]] = {
            "hold": lambda tx: tasks.hold(tx, run),
            "progress": lambda tx: tasks.progress(tx, run),
            "suspend": lambda tx: tasks.suspend(tx, run, Status.PENDING_SUBTASK),
            "requeue": lambda tx: tasks.requeue(tx, run),
            "renew": lambda tx: tasks.renew(tx, run),
            "finish": lambda tx: tasks.finish(tx, run, Status.COMPLETED),
        }
        for name, write in writes.items():
            try:
                async with world.database.transaction() as tx:
                    await write(tx)
            except RunLost:
                continue
            passed.append(name)
        return passed

    async def test_a_run_that_was_taken_over_can_write_nothing(self, world: World) -> None:
        run = await running(world)
        await world.do(EXPIRED, run.id)
        await world.do("select recover('30 s')")
        await world.do("update tasks set run_at = now()")
        [successor] = await world.claim(somebody())
        assert (successor.id, successor.token) == (run.id, run.token + 1)
        assert await self.writes(world, run) == []
        assert await world.status(run.id) is Status.RUNNING
        await finish(world, successor)

    async def test_nor_one_that_was_put_back_ended_or_cancelled(self, world: World) -> None:
        run = await running(world)
        await world.do(EXPIRED, run.id)
        await world.do("select recover('30 s')")
        assert await self.writes(world, run) == []
        assert await cancel(world, run.id) == []
        assert await self.writes(world, run) == []
        other = await running(world)
        await finish(world, other)
        assert await self.writes(world, other) == []
        assert await self.writes(world, replace(other, id=TaskId(uuid4()))) == []

    async def test_an_expired_lease_that_nobody_took_over_still_writes(self, world: World) -> None:
        run = await running(world)
        await world.do(EXPIRED, run.id)
        await finish(world, run)
        assert await world.status(run.id) is Status.COMPLETED

    async def test_the_fence_lets_nobody_in_until_the_write_is_committed(self, world: World) -> None:
        run = await running(world)
        async with held(world.database, "select from hold($1, $2)", run.id, run.token):
            cancelling = await blocked(world.database, cancel(world, run.id))
        assert await cancelling == [run.id]


class TestAttempts:
    async def test_a_committed_step_starts_them_over(self, world: World) -> None:
        run = await running(world)
        for _ in range(2):
            async with world.database.transaction() as tx:
                await tasks.requeue(tx, run)
            [run] = await world.claim(somebody())
        assert run.attempts == 3
        async with world.database.transaction() as tx:
            await tasks.progress(tx, run)
        async with world.database.transaction() as tx:
            await tasks.requeue(tx, run, error="again")
        [run] = await world.claim(somebody())
        assert (run.attempts, run.exhausted) == (2, False)

    async def test_the_claim_after_the_last_attempt_is_exhausted(self, world: World) -> None:
        run = await running(world, max_attempts=2)
        seen = [run.exhausted]
        for _ in range(2):
            async with world.database.transaction() as tx:
                await tasks.requeue(tx, run, error="broken")
            [run] = await world.claim(somebody())
            seen.append(run.exhausted)
        assert seen == [False, False, True]

    async def test_a_delay_keeps_the_task_back_and_renew_brings_all_attempts(self, world: World) -> None:
        run = await running(world)
        async with world.database.transaction() as tx:
            await tasks.requeue(tx, run, delay=60, error="later")
        assert await world.claim(somebody()) == []
        await world.do("update tasks set run_at = now()")
        [run] = await world.claim(somebody())
        async with world.database.transaction() as tx:
            await tasks.renew(tx, run)
        [run] = await world.claim(somebody())
        assert (run.attempts, await world.value("select error from tasks")) == (1, None)


class TestRecovery:
    async def test_expired_runs_go_back_at_once_and_at_no_cost(self, world: World) -> None:
        lost, kept = await running(world), await running(world)
        await world.do(EXPIRED, lost.id)
        async with world.database.transaction() as tx:
            assert await tasks.recover(tx) == 1
        [again] = await world.claim(somebody())
        assert (again.id, again.attempts) == (lost.id, 1)
        assert await world.status(kept.id) is Status.RUNNING

    async def test_recovery_waits_for_nobody(self, world: World) -> None:
        lost, other = await running(world), await running(world)
        await world.do("update tasks set lease_until = now() - interval '1 s'")
        async with held(world.database, "select from tasks where id = $1 for update", other.id):
            assert await world.value("select recover('30 s')") == 1
        assert await world.status(lost.id) is Status.PENDING

    async def test_an_instance_takes_back_its_own_runs_at_once(self, world: World) -> None:
        me = somebody()
        await world.queue()
        [mine] = await world.claim(me)
        other = await running(world)
        async with world.database.connection() as conn:
            assert await tasks.died(conn, me) == 1
        assert await world.status(other.id) is Status.RUNNING
        [again] = await world.claim(me)
        assert (again.id, again.attempts) == (mine.id, 1)

    async def test_what_a_lost_reply_left_is_put_back_at_no_cost_and_what_is_known_is_left(self, world: World) -> None:
        me = somebody()
        await world.queue()
        await world.queue()
        [known] = await world.claim(me)
        [unknown] = await world.claim(me)
        async with world.database.connection() as conn:
            assert await tasks.release(conn, me, [known.id]) == 1
        assert await world.status(known.id) is Status.RUNNING
        [again] = await world.claim(me)
        assert (again.id, again.attempts) == (unknown.id, 1)

    async def test_what_an_orderly_stop_interrupts_is_no_failed_attempt(self, world: World) -> None:
        me = somebody()
        await world.queue()
        await world.claim(me)
        async with world.database.connection() as conn:
            await tasks.release(conn, me)
        [again] = await world.claim(me)
        assert again.attempts == 1

    async def test_a_beat_renews_only_what_is_still_owned(self, world: World) -> None:
        me = somebody()
        for _ in range(3):
            await world.queue()
        kept, cancelled, taken = await world.claim(me, slots=3)
        foreign = await running(world)
        await cancel(world, cancelled.id)
        await world.do("update tasks set token = token + 1 where id = $1", taken.id)
        await world.do("update tasks set lease_until = now()")
        async with world.database.connection() as conn:
            assert await tasks.heartbeat(conn, me, [kept, cancelled, taken, foreign]) == {kept.id}
        renewed = await world.column("select id from tasks where lease_until > now() + interval '20 s'")
        assert renewed == [kept.id]


class TestTrees:
    async def test_a_child_knows_its_place_and_its_parent_counts_it(self, world: World) -> None:
        root = await world.queue()
        child = await world.queue(parent=root)
        grandchild = await world.queue(parent=child, payload={"goal": "x"})
        rows = await world.column("select (master_id, parent_id, depth, open_children) from tasks order by depth")
        assert rows == [(root, None, 0, 1), (root, root, 1, 1), (root, child, 2, 0)]
        assert await world.value("select input from tasks where id = $1", grandchild) == {"goal": "x"}

    async def test_a_live_duplicate_is_not_queued_and_not_counted(self, world: World) -> None:
        root = await world.queue()
        await world.queue(parent=root, dedupe="once")
        async with world.database.transaction() as tx:
            again = await tasks.create(tx, world.principal, "agent", Lane.AGENTS, parent=root, dedupe="once")
        assert again is None
        assert await world.value("select open_children from tasks where id = $1", root) == 1

    async def test_a_finished_one_makes_room_for_its_like(self, world: World) -> None:
        run = await running(world, dedupe="daily")
        await finish(world, run)
        assert await world.queue(dedupe="daily") != run.id

    async def test_a_join_waits_for_every_child_and_a_failed_one_is_a_result(self, world: World) -> None:
        root = await running(world, max_attempts=5)
        for _ in range(2):
            await world.queue(parent=root.id)
        async with world.database.transaction() as tx:
            await tasks.suspend(tx, root, Status.PENDING_SUBTASK)
        first, second = await world.claim(somebody(), slots=5)
        await finish(world, first)
        assert await world.status(root.id) is Status.PENDING_SUBTASK
        await world.do("update tasks set attempts = 4 where id = $1", root.id)
        await finish(world, second, Status.FAILED, "no luck")
        [again] = await world.claim(somebody())
        assert (again.id, again.attempts) == (root.id, 1)
        assert await world.value("select error from tasks where id = $1", second.id) == "no luck"

    async def test_a_parent_whose_children_were_quicker_does_not_wait(self, world: World) -> None:
        root = await running(world)
        await world.queue(parent=root.id)
        [child] = await world.claim(somebody())
        await finish(world, child)
        async with world.database.transaction() as tx:
            await tasks.suspend(tx, root, Status.PENDING_SUBTASK)
        assert await world.status(root.id) is Status.PENDING

    async def test_a_child_that_ends_while_its_parent_lies_down_wakes_it(self, world: World) -> None:
        root = await running(world)
        await world.queue(parent=root.id)
        [child] = await world.claim(somebody())
        lie_down = "select suspend($1, $2, 'pending_subtask')"
        async with held(world.database, lie_down, root.id, root.token):
            ending = await blocked(world.database, finish(world, child))
        await ending
        assert await world.status(root.id) is Status.PENDING

    async def test_a_parent_waiting_for_a_human_is_not_woken_by_a_child(self, world: World) -> None:
        root = await running(world)
        await world.queue(parent=root.id)
        [child] = await world.claim(somebody())
        async with world.database.transaction() as tx:
            await tasks.suspend(tx, root, Status.NEEDS_HUMAN_REVIEW)
        await finish(world, child)
        assert await world.status(root.id) is Status.NEEDS_HUMAN_REVIEW

    async def test_cancelling_ends_the_tree_and_tells_what_ran_from_the_root_down(self, world: World) -> None:
        above = await running(world)
        top = await world.queue(parent=above.id)
        async with world.database.transaction() as tx:
            await tasks.suspend(tx, above, Status.PENDING_SUBTASK)
        middle = await world.queue(parent=top)
        done, leaf, waiting = [await world.queue(parent=middle) for _ in range(3)]
        await world.do("update tasks set run_at = now() + interval '1 h' where id = $1", waiting)
        runs = {run.id: run for run in await world.claim(somebody(), slots=9)}
        await finish(world, runs[done])
        assert await cancel(world, top) == [top, middle, leaf]
        assert [await world.status(task) for task in (top, middle, leaf, waiting)] == [Status.CANCELLED] * 4
        assert await world.status(done) is Status.COMPLETED
        assert await world.status(above.id) is Status.PENDING
        assert await world.column("select distinct open_children from tasks") == [0]
        assert await cancel(world, top) == []

    async def test_cancelling_misses_no_child_that_is_born_meanwhile(self, world: World) -> None:
        root = await running(world)
        await world.queue(parent=root.id)
        [middle] = await world.claim(somebody())
        async with held(world.database, "select from hold($1, $2)", middle.id, middle.token) as tx:
            cancelling = await blocked(world.database, cancel(world, root.id))
            late = await tasks.create(tx, world.principal, "agent", Lane.AGENTS, parent=middle.id)
            assert late is not None
        assert await cancelling == [root.id, middle.id]
        assert await world.status(late) is Status.CANCELLED

    @pytest.mark.parametrize("end", [tasks.finish, tasks.suspend])
    async def test_a_run_that_ends_or_waits_locks_the_task_above_first_as_a_cancel_does(
        self, world: World, end: Callable[[Connection, Claim, Status], Awaitable[None]]
    ) -> None:
        root = await running(world)
        await world.queue(parent=root.id)
        [child] = await world.claim(somebody())
        after = Status.COMPLETED if end is tasks.finish else Status.NEEDS_HUMAN_REVIEW
        async with world.database.transaction() as tx:
            await sessions.lock_for(tx, world.session, child, above=True)
            cancelling = await blocked(world.database, cancel(world, root.id))
            await tasks.progress(tx, child)
            await end(tx, child, after)
        assert await cancelling == [root.id]
        assert await world.status(child.id) is (after if after.final else Status.CANCELLED)

    async def test_a_parent_that_is_cancelled_while_its_child_finishes_leaves_nothing_open(self, world: World) -> None:
        for _ in range(25):
            parent = await world.queue()
            child = await world.queue(parent=parent)
            run = {run.id: run for run in await world.claim(somebody(), 2)}[child]

            async def finish(tx: Connection, run: Claim = run) -> None:
                await tasks.finish(tx, run, Status.COMPLETED)

            async def cancel(tx: Connection, parent: TaskId = parent) -> None:
                await tasks.cancel(tx, parent)

            done = await asyncio.gather(world.database.run(finish), world.database.run(cancel), return_exceptions=True)
            ended = Status.CANCELLED if isinstance(done[0], RunLost) else Status.COMPLETED
            assert done[1] is None
            assert (await world.status(parent), await world.status(child)) == (Status.CANCELLED, ended)
            assert await world.value("select open_children from tasks where id = $1", parent) == 0

    async def test_two_hundred_beats_and_cancels_at_once_never_lock_each_other_out(self, world: World) -> None:
        me = somebody()
        for _ in range(200):
            root = await world.queue()
            for _ in range(3):
                await world.queue(parent=root)
            runs = await world.claim(me, slots=4)
            child = next(run for run in runs if run.id != root)
            await asyncio.gather(beat(world, me, runs[::-1]), cancel(world, root), finish_if_owned(world, child))
            assert await world.value("select count(*) from tasks where status = 'running'") == 0


async def beat(world: World, worker: InstanceId, runs: Sequence[Claim]) -> None:
    async with world.database.transaction() as tx:
        await tasks.heartbeat(tx, worker, runs)


async def finish_if_owned(world: World, run: Claim) -> None:
    with suppress(RunLost):
        await finish(world, run)


class TestChats:
    async def test_a_session_has_one_live_chat(self, world: World) -> None:
        for _ in range(3):
            await world.chat(somebody())
        assert await world.value("select count(*) from tasks") == 1
        with pytest.raises(asyncpg.UniqueViolationError):
            await world.do(
                """insert into tasks (id, master_id, kind, lane, principal_id, session_id)
                   select gen_random_uuid(), id, 'chat', 'chat', principal_id, session_id from tasks"""
            )

    async def test_a_chat_may_wait_for_more_and_no_longer_than_the_shortest_wait(self, world: World) -> None:
        waits = []
        for delay in (5.0, 9.0, 1.0, 0.0):
            async with world.database.transaction() as tx:
                await sessions.lock(tx, world.session)
                await tasks.create_chat(tx, world.principal, world.session, somebody(), delay=delay)
                waits.append(round(await tx.fetchval("select extract(epoch from run_at - now()) from tasks")))
        assert waits == [5, 5, 1, 0]

    async def test_a_message_wakes_the_chat_that_waits_in_backoff(self, world: World) -> None:
        me = somebody()
        await world.chat(me)
        [run] = await world.claim(me, lane=Lane.CHAT)
        async with world.database.transaction() as tx:
            await tasks.requeue(tx, run, delay=60)
        await world.chat(me)
        assert len(await world.claim(me, lane=Lane.CHAT)) == 1

    async def test_one_that_runs_is_left_as_it_is(self, world: World) -> None:
        me = somebody()
        await world.chat(me)
        [run] = await world.claim(me, lane=Lane.CHAT)
        await world.chat(me)
        await finish(world, run)
        assert await world.value("select count(*) from tasks") == 1

    @pytest.mark.parametrize("status", ["needs_human_review", "pending_subtask"])
    async def test_a_chat_never_waits_for_a_human_or_for_others(self, world: World, status: str) -> None:
        await world.chat(somebody())
        with pytest.raises(asyncpg.CheckViolationError):
            await world.do("update tasks set status = $1, open_children = 1", status)

    async def test_the_live_chat_is_found_until_it_ends(self, world: World) -> None:
        await world.chat(somebody())
        [run] = await world.claim(somebody(), lane=Lane.CHAT)
        async with world.database.transaction() as tx:
            assert await tasks.live_chat(tx, world.session) == run.id
            await tasks.finish(tx, run, Status.FAILED)
            assert await tasks.live_chat(tx, world.session) is None


async def test_the_queue_is_counted_by_status(world: World) -> None:
    await finish(world, await running(world))
    await running(world)
    for _ in range(2):
        await world.queue()
    async with world.database.connection() as conn:
        assert await tasks.queue(conn) == {Status.PENDING: 2, Status.RUNNING: 1}
        assert await tasks.get(conn, TaskId(uuid4())) is None


async def test_other_processes_are_told_of_work_and_of_cancelled_runs(world: World, dsn: str) -> None:
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    listener = await asyncpg.connect(dsn)
    try:
        for channel in ("supaclaw_task", "supaclaw_cancel"):
            await listener.add_listener(channel, lambda _c, _p, name, payload: heard.put_nowait((name, str(payload))))
        task = await world.queue()
        assert await asyncio.wait_for(heard.get(), 10) == ("supaclaw_task", "")
        await world.claim(somebody())
        await cancel(world, task)
        assert await asyncio.wait_for(heard.get(), 10) == ("supaclaw_cancel", str(task))
    finally:
        await listener.close()


async def test_in_a_conversation_of_several_tasks_the_oldest_goes_first(world: World) -> None:
    async with world.database.transaction() as tx:
        talk = await triggers.conversation(tx, world.principal, "ci/main", Label.UNTRUSTED)
        apart = await sessions.start(tx, world.principal, Label.OWNER)
        for session in (talk, talk, apart, apart):
            await tasks.create(tx, world.principal, "agent", Lane.AGENTS, session=session)
    runs = await world.claim(somebody(), 4)

    async def ahead() -> list[int]:
        async with world.database.connection() as conn:
            return [await tasks.count_ahead(conn, run) for run in runs]

    assert await ahead() == [0, 1, 0, 0]
    async with world.database.transaction() as tx:
        await tasks.finish(tx, runs[0], Status.FAILED)
    assert await ahead() == [0, 0, 0, 0]
