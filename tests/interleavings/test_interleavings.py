"""Schedules of single statements: none breaks an invariant, each replays exactly, and each old bug is found."""

import os
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import pytest

from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import OutboxId
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses, inbox, outbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import sessions, unread
from gateway.store.trust import reviews
from tests.conftest import FULL, one_of_a_class
from tests.interleavings.families import FAMILIES, Family
from tests.interleavings.invariants import Violation
from tests.interleavings.scheduler import Draws
from tests.interleavings.shrinking import shortest
from tests.interleavings.world import World

SHARDS = 10
SCHEDULES = int(os.environ.get("SUPACLAW_SCHEDULES", "20000" if FULL else "300"))
FAULTS = 2
MOST = 2_000
"""Schedules within which each of the bugs is found."""


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_no_order_of_statements_breaks_an_invariant(world: World, shard: int) -> None:
    """`SUPACLAW_SEED=n` runs one alone."""
    seeds = range(shard, SCHEDULES, SHARDS)
    if alone := os.environ.get("SUPACLAW_SEED"):
        seeds = range(int(alone), int(alone) + (shard == 0))
    for seed in seeds:
        draws = Draws(seed)
        try:
            await world.explore(draws, faults=FAULTS)
        except Violation:
            _, violation = await shortest(world, draws.drawn, faults=FAULTS)
            raise AssertionError(f"SUPACLAW_SEED={seed}, shortened: {violation}") from None


@pytest.mark.thorough
async def test_a_seed_replays_exactly(world: World) -> None:
    for seed in range(10):
        first = await world.explore(Draws(seed), faults=FAULTS)
        assert await world.explore(Draws(seed), faults=FAULTS) == first


Plant = Callable[[World, pytest.MonkeyPatch], str]
"""Puts a bug into the product; returns statements for the database."""


def no_fence(_world: World, _patch: pytest.MonkeyPatch) -> str:
    return """create or replace function hold(p_id uuid, p_token bigint) returns tasks language plpgsql
              set search_path = supaclaw as $$ declare t tasks; begin
              select * into t from tasks where id = p_id for update; return t; end $$;
              create or replace function finish(p_id uuid, p_token bigint, p_status text, p_output jsonb default null,
                p_error text default null) returns void language plpgsql set search_path = supaclaw as $$ begin
              perform settle(p_id, p_status, p_output, p_error); end $$"""


def unread_not_looked_at(_world: World, patch: pytest.MonkeyPatch) -> str:
    async def nothing(*_: object) -> bool:
        return False

    patch.setattr(unread, "left", nothing)
    return ""


def locks_in_another_order(_world: World, patch: pytest.MonkeyPatch) -> str:
    """The session before the address, which commands lock first."""
    lock = addresses.lock

    async def session_first(conn: Connection, address: Address) -> AddressRow | None:
        if (at := await addresses.find(conn, address)) is not None:
            await sessions.lock(conn, at.session_id)
        return await lock(conn, address)

    patch.setattr(addresses, "lock", session_first)
    return ""


def cancelled_in_one_pass(_world: World, _patch: pytest.MonkeyPatch) -> str:
    """Children that a run commits while the cancel waits for it are not in its snapshot."""
    return """create or replace function cancel_tree(p_root uuid, p_itself boolean, p_error text)
              returns table (task uuid, ran boolean) language sql set search_path = supaclaw as $$
              with recursive tree as (
                select id from tasks where id = p_root
                union all select c.id from tasks c join tree on c.parent_id = tree.id
              ), open as (
                select t.id, t.status = 'running' as ran from tasks t join tree using (id)
                where t.status not in ('completed', 'failed', 'cancelled') and (p_itself or t.id <> p_root)
                order by t.depth, t.id for update of t
              )
              update tasks t set status = 'cancelled', output = null, error = p_error, worker = null,
                lease_until = null, open_children = 0 from open where t.id = open.id returning t.id, open.ran $$"""


def sent_again_after_a_crash(_world: World, patch: pytest.MonkeyPatch) -> str:
    async def marked(conn: Connection, row: OutboxId) -> bool:
        return await conn.fetchval("select true from outbox where id = $1 and state = 'pending'", row) is not None

    patch.setattr(outbox, "mark_sending", marked)
    return ""


def commands_run_again(_world: World, patch: pytest.MonkeyPatch) -> str:
    async def open_still(*_: object) -> bool:
        return True

    patch.setattr(inbox, "still_open", open_still)
    return ""


def answered_twice(_world: World, patch: pytest.MonkeyPatch) -> str:
    """An answer counts whatever was answered before."""
    patch.setattr(reviews, "decide", _changed(reviews.decide, "and state = 'open' and (expires_at", "and (expires_at"))
    return ""


def _changed(function: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """The function with another text in its statements."""
    code = function.__code__
    constants = tuple(each.replace(old, new) if isinstance(each, str) else each for each in code.co_consts)
    assert constants != code.co_consts, "the text is in it"
    changed = FunctionType(code.replace(co_consts=constants), function.__globals__, None, function.__defaults__)
    changed.__kwdefaults__ = function.__kwdefaults__
    return changed


ANSWERS = tuple(family for family in FAMILIES if family.name == "answers")
PLANTS: Mapping[Plant, Sequence[Family]] = {
    no_fence: FAMILIES[:7],
    unread_not_looked_at: FAMILIES[:7],
    locks_in_another_order: FAMILIES[:7],
    cancelled_in_one_pass: FAMILIES[:7],
    sent_again_after_a_crash: FAMILIES[:7],
    commands_run_again: FAMILIES[:7],
    answered_twice: ANSWERS,
}
"""The families in which each is looked for."""


@pytest.mark.parametrize(
    "plant", one_of_a_class(PLANTS, {no_fence, cancelled_in_one_pass}), ids=lambda plant: plant.__name__
)
async def test_an_old_bug_is_found(world: World, monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    if statements := plant(world, monkeypatch):
        await world.monitor.execute(statements)
    for seed in range(MOST):
        try:
            await world.explore(Draws(seed), faults=FAULTS, families=PLANTS[plant])
        except Violation as violation:
            print(f"{plant.__name__}: found by schedule {seed}: {str(violation).splitlines()[0]}")
            return
    pytest.fail(f"{MOST} schedules don't find it")


@pytest.mark.chaos
async def test_a_schedule_that_fails_is_shortened(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    unread_not_looked_at(world, monkeypatch)
    for seed in range(MOST):
        draws = Draws(seed)
        try:
            await world.explore(draws, faults=FAULTS)
        except Violation:
            break
    drawn, violation = await shortest(world, draws.drawn, faults=FAULTS)
    assert "nobody answers" in str(violation)
    assert len(drawn) < len(draws.drawn)
    with pytest.raises(Violation, match="nobody answers"):
        await world.explore(Draws(drawn), faults=FAULTS)
