"""Bugs that would really be made, each put into the product to see that a family of schedules meets it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import FunctionType
from typing import Any

import pytest

from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.model import Highest
from gateway.domain.ids import OutboxId, ReviewId, SessionId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Claim
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses, inbox, outbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.files import file_map
from gateway.store.transcript import sessions, unread
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewRow
from gateway.store.work import budgets
from gateway.store.work.budgets import SharedLimits
from tests.interleavings.families import FAMILIES, Family
from tests.interleavings.world import World

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
    patch.setattr(unread, "left", _always(False))
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
    patch.setattr(inbox, "still_open", _always(True))
    return ""


def answered_twice(_world: World, patch: pytest.MonkeyPatch) -> str:
    """An answer counts whatever was answered before."""
    patch.setattr(reviews, "decide", _changed(reviews.decide, "and state = 'open' and (expires_at", "and (expires_at"))
    return ""


def questions_of_the_cancelled_stay_open(_world: World, patch: pytest.MonkeyPatch) -> str:
    """They are closed before their tasks are cancelled, so that nothing is found."""
    patch.setattr(reviews, "close_cancelled", _always(None))
    return ""


def approved_calls_run_again(_world: World, patch: pytest.MonkeyPatch) -> str:
    """The next run is not told that the call had begun before."""
    start = reviews.start

    async def begun_anew(conn: Connection, review: ReviewId) -> tuple[ReviewRow, bool]:
        return (await start(conn, review))[0], False

    patch.setattr(reviews, "start", begun_anew)
    return ""


def reserved_after_the_check(_world: World, patch: pytest.MonkeyPatch) -> str:
    """Whether a call fits is looked up in one transaction, and reserved in the next."""
    reserve = budgets.reserve

    async def looked_up(
        conn: Connection, run: Claim, highest: Highest, shared: SharedLimits, now: datetime, before: float
    ) -> str | None:
        with suppress(InterruptedError):
            async with conn.transaction():
                if refused := await reserve(conn, run, highest, shared, now, before):
                    return refused
                raise InterruptedError
        sql = "update tasks set reserved_token = token, reserved_usd = $2 where id = $1 and token = $3"
        await conn.execute(sql, run.id, highest.usd, run.token)
        return None

    patch.setattr(budgets, "reserve", looked_up)
    return ""


def deleted_without_its_addresses(_world: World, patch: pytest.MonkeyPatch) -> str:
    """A conversation is deleted without a lock on the chats that have it open."""
    patch.setattr(addresses, "lock_session", _always(True))
    return ""


def set_whatever_the_version(_world: World, patch: pytest.MonkeyPatch) -> str:
    """A machine sets the row of a file as another one has set it meanwhile."""
    setting = _changed(file_map.compare_and_set, "and version = $7", "and version <= $7 + 1000")
    patch.setattr(file_map, "compare_and_set", setting)
    return ""


def named_while_it_is_swept(_world: World, patch: pytest.MonkeyPatch) -> str:
    """A row may get an object that is about to be deleted."""
    setting = _changed(file_map.compare_and_set, "coalesce(gone_at, 'infinity') >= $3", "gone_at >= $3")
    patch.setattr(file_map, "compare_and_set", setting)
    return ""


def questions_locked_before_tasks(_world: World, patch: pytest.MonkeyPatch) -> str:
    """An answer locks its question, and then the task that asked; a cancel locks them the other way round."""
    unlocked = _changed(reviews.lock_to_answer, "order by depth, id for update", "limit 0")
    patch.setattr(reviews, "lock_to_answer", unlocked)
    return ""


def approved_by_each_process(world: World, patch: pytest.MonkeyPatch) -> str:
    """A call is queued by each of two processes that take an approval."""
    return answered_twice(world, patch)


def shown_by_each_that_looks(_world: World, patch: pytest.MonkeyPatch) -> str:
    """A question that two have found is shown by both."""
    patch.setattr(reviews, "mark_told", _changed(reviews.mark_told, "and told_at is null", ""))
    return ""


def own_task_locked_first(_world: World, patch: pytest.MonkeyPatch) -> str:
    """A run that ends or waits locks its task before the one above, which a cancel locks first."""
    lock_for = sessions.lock_for

    async def itself(conn: Connection, session: SessionId, run: Claim, *, above: bool = False) -> Label:
        return await lock_for(conn, session, run)

    patch.setattr(sessions, "lock_for", itself)
    return ""


def _always(answer: object) -> Callable[..., Any]:
    """A function that does nothing and has this answer."""

    async def answered(*_: object) -> object:
        return answer

    return answered


def _changed(function: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """The function with another text in its statements."""
    code = function.__code__
    constants = tuple(each.replace(old, new) if isinstance(each, str) else each for each in code.co_consts)
    assert constants != code.co_consts, "the text is in it"
    changed = FunctionType(code.replace(co_consts=constants), function.__globals__, None, function.__defaults__)
    changed.__kwdefaults__ = function.__kwdefaults__
    return changed


def _of(*names: str) -> Sequence[Family]:
    return tuple(family for family in FAMILIES if family.name in names)


PLANTS: Mapping[Plant, Sequence[Family]] = {
    no_fence: FAMILIES[:7],
    unread_not_looked_at: FAMILIES[:7],
    locks_in_another_order: FAMILIES[:7],
    cancelled_in_one_pass: FAMILIES[:7],
    sent_again_after_a_crash: FAMILIES[:7],
    commands_run_again: FAMILIES[:7],
    answered_twice: _of("answers"),
    questions_of_the_cancelled_stay_open: _of("asked"),
    approved_calls_run_again: _of("approved"),
    reserved_after_the_check: _of("budget"),
    deleted_without_its_addresses: _of("deletion"),
    set_whatever_the_version: _of("files"),
    named_while_it_is_swept: _of("files"),
    questions_locked_before_tasks: _of("asked"),
    approved_by_each_process: _of("payments"),
    shown_by_each_that_looks: _of("approvals"),
    own_task_locked_first: _of("tree budget"),
}
"""The families in which each is looked for."""
