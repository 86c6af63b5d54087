"""Who is given up for the death of a process, and who only was there."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pytest

from gateway.domain.ids import InstanceId, TaskId
from gateway.domain.work.tasks import Claim, Lane, Status
from gateway.store.work import tasks
from tests.store.world import World, somebody


@dataclass
class Machine:
    """One process after the other on the same data; time passes only when a test says so."""

    world: World
    me: InstanceId = field(default_factory=somebody)
    deaths: int = 0

    async def claims(self) -> set[TaskId]:
        return {run.id for run in await self.claimed()}

    async def claimed(self) -> list[Claim]:
        async with self.world.database.connection() as conn:
            return await tasks.claim(conn, self.me, dict.fromkeys((Lane.CHAT, Lane.AGENTS), 100))

    async def dies(self) -> None:
        self.deaths += 1
        async with self.world.database.connection() as conn:
            await tasks.died(conn, self.me)

    async def live(self, kills: Callable[[TaskId], bool] = lambda _: False) -> set[TaskId]:
        """Run what can be run, each to its end, until one kills or nothing is left; returns what was given up."""
        given_up: set[TaskId] = set()
        while runs := await self.claimed():
            for run in runs:
                if run.exhausted:
                    given_up.add(run.id)
                elif kills(run.id):
                    await self.dies()
                    return given_up
            for run in runs:
                await self._end(run)
        return given_up

    async def passes(self) -> None:
        """All the time that anybody is held for."""
        await self.world.do("update tasks set held_until = null where held_until is not null")
        await self.world.do("update tasks set updated_at = now() - interval '1 h' where status = 'running'")

    async def a_pause_passes(self) -> None:
        """The time that the next one is held for."""
        await self.world.do("update tasks set held_until = null where held_until = (select min(held_until) from tasks)")

    async def _end(self, run: Claim) -> None:
        async with self.world.database.transaction() as tx:
            await tasks.finish(tx, run, Status.COMPLETED)


@pytest.fixture
def machine(world: World) -> Machine:
    return Machine(world)


async def queued(world: World, number: int) -> set[TaskId]:
    return {await world.queue() for _ in range(number)}


async def alone(world: World) -> list[int]:
    return await world.column("select alone from tasks order by seq")


async def until_over(machine: Machine, kills: Collection[TaskId]) -> set[TaskId]:
    """Live and die until nothing is left to do."""
    given_up: set[TaskId] = set()
    while await machine.world.value("select count(*) from tasks where status <> 'completed'"):
        given_up |= await machine.live(kills.__contains__)
        await machine.passes()
        assert machine.deaths < 100
    return given_up


async def test_one_death_or_two_cost_nobody_anything_and_hold_nobody_back(world: World, machine: Machine) -> None:
    crowd = await queued(world, 5)
    assert await machine.claims() == crowd
    await machine.dies()
    runs = await machine.claimed()
    assert ({run.id for run in runs}, {run.attempts for run in runs}) == (crowd, {1})


async def test_one_message_that_kills_is_found_among_many_and_nobody_else_is_given_up(
    world: World, machine: Machine
) -> None:
    crowd = list(await queued(world, 12))
    assert await until_over(machine, crowd[7:8]) == {crowd[7]}
    assert machine.deaths == 5  # two of all, three alone


async def test_one_that_was_alone_from_the_first_is_given_up_after_one_death_more_than_three(
    world: World, machine: Machine
) -> None:
    [task] = await queued(world, 1)
    assert await until_over(machine, [task]) == {task}
    assert machine.deaths == 4


async def test_several_that_kill_are_found_one_after_the_other(world: World, machine: Machine) -> None:
    crowd = list(await queued(world, 8))
    assert await until_over(machine, crowd[2:5]) == {*crowd[2:5]}


async def test_what_two_deaths_have_met_is_run_one_by_one_and_then_ever_more_at_once(
    world: World, machine: Machine
) -> None:
    crowd = await queued(world, 9)
    for _ in range(2):
        assert await machine.claims() == crowd
        await machine.dies()
    newcomer = await world.queue()
    first = await machine.claims()
    assert len(first) == 2
    assert newcomer in first
    sizes = []
    for _ in range(5):
        assert await machine.claims() == set()
        await machine.passes()
        sizes.append(len(await machine.claims()))
    assert sizes == [1, 2, 4, 1, 0]


async def test_of_several_lanes_claimed_at_once_one_runs(world: World, machine: Machine) -> None:
    lanes = {Lane.AGENTS: 5, Lane.FILES: 5}
    for lane in lanes:
        await world.queue(lane=lane)
    await world.do("update tasks set crashes = 2")
    async with world.database.connection() as conn:
        assert len(await tasks.claim(conn, machine.me, lanes)) == 1
        assert await tasks.claim(conn, machine.me, lanes) == []


async def test_a_step_clears_it_of_suspicion(world: World, machine: Machine) -> None:
    await queued(world, 2)
    await world.do("update tasks set crashes = 2")
    [first] = await machine.claimed()
    async with world.database.transaction() as tx:
        await tasks.progress(tx, first)
    assert len(await machine.claims()) == 1


async def test_who_was_alone_is_held_back_and_others_are_not(world: World, machine: Machine) -> None:
    [task] = await queued(world, 1)
    for _ in range(2):
        assert await machine.claims() == {task}
        await machine.dies()
    assert await machine.claims() == set()
    other = await world.queue()
    assert await machine.claims() == {other}
    seconds = "select extract(epoch from held_until - updated_at)::int from tasks where id = $1"
    assert await world.value(seconds, task) == 10


async def test_it_is_held_the_longer_the_longer_it_ran(world: World, machine: Machine) -> None:
    await queued(world, 1)
    await machine.claims()
    await machine.dies()
    await machine.claims()
    await world.do("update tasks set updated_at = updated_at - interval '1 min'")
    await machine.dies()
    assert await world.value("select extract(epoch from held_until - updated_at)::int from tasks") == 250


async def test_a_new_message_of_the_same_chat_does_not_end_the_pause(world: World, machine: Machine) -> None:
    await world.ask("poison")
    await world.chat(machine.me)
    for _ in range(2):
        await world.claim(machine.me, lane=Lane.CHAT)
        await machine.dies()
    await world.ask("hello?")
    await world.chat(machine.me)
    assert await world.claim(machine.me, lane=Lane.CHAT) == []


async def test_a_death_in_the_pause_shows_that_something_else_kills(world: World, machine: Machine) -> None:
    [task] = await queued(world, 1)
    for _ in range(2):
        await machine.claims()
        await machine.dies()
    assert await alone(world) == [1]
    await machine.dies()
    assert await alone(world) == [-1]
    assert await machine.claims() == {task}


async def test_a_death_that_another_explains_starts_the_pause_over_and_speaks_for_nobody(
    world: World, machine: Machine
) -> None:
    await queued(world, 2)
    for _ in range(2):
        await machine.claims()
        await machine.dies()
    assert len(held := await machine.claims()) == 1
    await machine.dies()
    await world.do(
        "update tasks set held_until = held_until - interval '9 s', updated_at = updated_at - interval '9 s'"
    )
    assert len(other := await machine.claims()) == 1
    assert other != held
    await machine.dies()
    assert await alone(world) == [1, 1]
    left = "select extract(epoch from held_until - now()) > 5 from tasks where id = any($1)"
    assert await world.value(left, list(held)) is True


async def test_two_that_kill_in_each_others_pause_do_not_shield_each_other(world: World, machine: Machine) -> None:
    killers, given_up = await queued(world, 2), set[TaskId]()
    while given_up != killers:
        assert machine.deaths < 20
        given_up |= await machine.live(killers.__contains__)
        await machine.a_pause_passes()
    assert machine.deaths == 8  # two of both, three of each alone


@pytest.mark.parametrize("lane", [Lane.CHAT, Lane.AGENTS])
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_killers_are_found_while_others_arrive(world: World, machine: Machine, number: int, lane: Lane) -> None:
    killers, given_up = await queued(world, number), set[TaskId]()
    while given_up != killers:
        assert machine.deaths < 20
        for _ in range(3):
            await world.queue(lane=lane)
        given_up |= await machine.live(killers.__contains__)
        await machine.a_pause_passes()
        await world.do("update tasks set updated_at = now() - interval '1 h' where status = 'running'")


async def test_one_that_met_a_death_waits_for_a_suspect_alone(world: World, machine: Machine) -> None:
    [suspect, one, _new] = await queued(world, 3)
    await world.do("update tasks set crashes = 2 where id = $1", suspect)
    await world.do("update tasks set crashes = 1 where id = $1", one)
    assert one not in await machine.claims()
    assert await machine.claims() == set()
    await machine.passes()  # the suspect lives on
    assert await machine.claims() == {one}


async def test_the_second_pause_is_three_times_as_long(world: World, machine: Machine) -> None:
    await queued(world, 1)
    for _ in range(3):
        await machine.passes()
        assert await machine.claims()
        await machine.dies()
    assert await world.value("select extract(epoch from held_until - updated_at)::int from tasks") == 30


@pytest.mark.parametrize("waiting", [1, 3, 30])
async def test_however_often_it_is_killed_in_quick_succession_nobody_is_given_up(
    world: World, machine: Machine, waiting: int
) -> None:
    crowd = await queued(world, waiting)
    for _ in range(40):
        assert not any(run.exhausted for run in await machine.claimed())
        await machine.dies()
    assert await until_over(machine, []) == set()
    assert len(crowd) == waiting


async def test_a_stop_in_good_order_counts_for_nothing(world: World, machine: Machine) -> None:
    await queued(world, 1)
    for _ in range(5):
        [run] = await machine.claimed()
        async with world.database.connection() as conn:
            await tasks.release(conn, machine.me)
    assert (run.attempts, await alone(world)) == (1, [0])


async def test_a_death_that_is_noticed_by_another_instance_counts_the_same(world: World, machine: Machine) -> None:
    [task] = await queued(world, 1)
    for _ in range(2):
        [run] = await machine.claimed()
        await world.do("update tasks set lease_until = now() - interval '1 s'")
        async with world.database.transaction() as tx:
            await tasks.recover(tx)
    assert (run.id, run.attempts, await alone(world)) == (task, 1, [1])
