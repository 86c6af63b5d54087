"""`supaclaw schedules`: reminders and recurring tasks."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, TypeAlias, TypeVar

from gateway.agent.work.schedules import ScheduleRequest, Schedules, schedule_line
from gateway.cli.connections.database import owners_zone, with_connection, with_owner
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import (
    AsJson,
    argument,
    facts_of,
    flag,
    heading,
    option,
    print_json,
    print_result,
    print_rows,
    shown,
)
from gateway.config.data.instance import running_pid
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import AddressId, PrincipalId
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line
from gateway.domain.work.schedules import Misfire
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses
from gateway.store.people import principals
from gateway.store.work import schedules as store
from gateway.store.work.schedules import RunRow, ScheduleRow
from gateway.timetable.cron import check_fields
from gateway.timetable.schedules import ScheduleChanges, define, is_delay, next_slots
from gateway.timetable.wording import cron_notes, in_words, local, moment

MAX_LISTED = 10_000
"""The most schedules in one list."""
MAX_TEXT = 4_000
NEXT = 5
"""Times that are shown of a new schedule."""
COLUMNS = ("id", "name", "of", "when", "next_run_at", "state")
RUN_COLUMNS = ("slot", "executed_at", "produced_at", "delivered_at", "missed", "error")
NONE = "Nothing is scheduled. `supaclaw schedules add --help` shows how to add, `list --all` paused and finished ones."
NOT_RUNNING = "; no gateway is running on this machine's data, so it runs once one is started"
UTC_ASSUMED = "Your time zone is unknown, so UTC is used; set owner.timezone in config.json, or pass --zone."

Facts: TypeAlias = Mapping[str, object]
Result = TypeVar("Result")
Which = Annotated[str, argument("A number in the list, or the name of one of yours.", "NUMBER|NAME")]


def show_all(
    everything: Annotated[bool, flag("Include paused and finished ones.", "--all")] = False, as_json: AsJson = False
) -> None:
    """List everybody's schedules."""

    async def read(conn: Connection) -> list[Facts]:
        return await _facts(conn, await store.listed(conn, None, everything=everything, limit=MAX_LISTED))

    print_rows(with_connection(read), COLUMNS, as_json=as_json, none=NONE)


def show(which: Which, as_json: AsJson = False) -> None:
    """Show a schedule and the outcome of its last runs."""

    async def read(schedules: Schedules) -> tuple[Facts, list[Facts]]:
        row = await schedules.get(which)
        [facts] = await _facts(schedules.tx, [row])
        return facts, [_run_facts(run, row.definition.zone) for run in await store.runs(schedules.tx, row.id)]

    facts, runs = _with_schedules(read)
    if as_json:
        print_json({**facts, "runs": runs})
        return
    for name, value in facts.items():
        # Third-party text must stay on one line and must not control the terminal.
        if text := one_line(shown(name, value), MAX_TEXT):
            echo(f"{heading(name)}: {text}")
    if runs:
        print_rows(runs, RUN_COLUMNS, as_json=False)


def add(
    name: Annotated[str, argument("A name for the schedule.", "NAME")],
    prompt: Annotated[str, option("Instructions for the agent.", "TEXT")],
    at: Annotated[str | None, option('Run once, such as at 2027-03-01T09:00 or "in 20 minutes".', "TIME")] = None,
    cron: Annotated[str | None, option('Run repeatedly, such as "30 8 * * 1-5".', "FIELDS")] = None,
    zone: Annotated[str | None, option("Time zone, such as Europe/Berlin; default: yours.", "ZONE")] = None,
    misfire: Annotated[Misfire, option("Runs to make up after downtime: the last, none or all.")] = Misfire.RUN_ONCE,
    history: Annotated[bool, flag("Show the agent the chat it answers in.", "--history")] = False,
    to: Annotated[
        str | None, option("Where to send results, such as telegram; default: where you wrote last.", "CHANNEL")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a schedule. Without a time it only runs when you `run` it."""

    async def write(schedules: Schedules) -> ScheduleRow:
        address = await _address(schedules.tx, schedules.principal, to) if to else None
        asked: ScheduleChanges = {
            "name": name,
            "prompt": prompt,
            "schedule_type": None if at is None and cron is None else "recurring" if at is None else "once",
            "run_at": at,
            "cron_expr": cron,
            "timezone": zone,
            "misfire": misfire.value,
            "include_session_history": history,
        }
        return await schedules.add(ScheduleRequest("cli", Label.OWNER, address), asked)

    _change(write, "added", as_json, _when_it_runs)
    if cron and not as_json:
        typed = define(now=datetime.now(UTC), zone=zone or owners_zone(), name="-", prompt="-", cron_expr=cron)
        echo("\n".join(["next times:", *(moment(at, typed.zone) for at in next_slots(typed, datetime.now(UTC), NEXT))]))
        for note in cron_notes(check_fields(cron)):
            echo(note)
    if not as_json and (cron or (at and not is_delay(at))) and not (zone or owners_zone()):
        echo(UTC_ASSUMED)


def run(which: Which, as_json: AsJson = False) -> None:
    """Run a schedule now, in addition to its planned runs."""

    async def write(schedules: Schedules) -> ScheduleRow:
        row, task = await schedules.run(which)
        return replace(row, task_id=task)

    _change(write, "queued", as_json, _when_it_runs)


def pause(which: Which, as_json: AsJson = False) -> None:
    """Pause a schedule."""
    _change(lambda schedules: schedules.pause(which), "paused", as_json)


def resume(which: Which, as_json: AsJson = False) -> None:
    """Resume a schedule, from its next planned time."""
    _change(lambda schedules: schedules.resume(which), "resumed", as_json, _when_it_runs)


def remove(which: Which, as_json: AsJson = False) -> None:
    """Delete a schedule, and the record of its runs."""
    _change(lambda schedules: schedules.remove(which), "removed", as_json)


def _change(
    work: Callable[[Schedules], Awaitable[ScheduleRow]], done: str, as_json: bool, more: Callable[[], str] = str
) -> None:
    """Print the schedule that `work` changed, and how."""

    async def changed(schedules: Schedules) -> tuple[ScheduleRow, Facts]:
        row = await work(schedules)
        [facts] = await _facts(schedules.tx, [row])
        return row, facts

    row, facts = _with_schedules(changed)
    print_result(facts, f"{done}: {schedule_line(row)}{more()}", as_json=as_json)


def _with_schedules(work: Callable[[Schedules], Awaitable[Result]]) -> Result:
    """Run `work` on the owner's schedules, where a number may name another person's."""

    def run_work(tx: Connection, owner: PrincipalId) -> Awaitable[Result]:
        return work(Schedules(tx, owner, datetime.now(UTC), owners_zone(), most=None, of_all=True))

    return with_owner(run_work)


async def _address(tx: Connection, owner: PrincipalId, channel: str) -> AddressId:
    at = await addresses.last_spoken_at(tx, owner, channel)
    if at is None:
        known = ", ".join(await addresses.channels(tx, owner)) or "none yet"
        raise OwnerMustAct(f"you have not written on {channel} yet; channels with a chat: {known}")
    return at.id


async def _facts(conn: Connection, rows: Sequence[ScheduleRow]) -> list[Facts]:
    """The rows as they are shown: `of` is the member or group of one that isn't the owner's."""
    others = await principals.names(conn, {row.principal_id for row in rows})
    return [_row_facts(row, others.get(row.principal_id)) for row in rows]


def _row_facts(row: ScheduleRow, of: str | None) -> Facts:
    definition = row.definition
    states = {"paused": row.paused_at, "over": row.completed_at, "failing": row.failing_since}
    return {
        "id": row.id,
        "name": definition.name,
        "of": of,
        "when": in_words(definition),
        "next_run_at": local(row.next_run_at, definition.zone) if row.next_run_at else None,
        "state": ", ".join(name for name, since in states.items() if since),
        "prompt": definition.prompt,
        "misfire": definition.misfire.value,
        "include_session_history": definition.include_session_history,
        "origin": row.origin,
        "task_id": row.task_id,
    }


def _run_facts(run: RunRow, zone: str) -> Facts:
    facts = {name: local(each, zone) if isinstance(each, datetime) else each for name, each in facts_of(run).items()}
    return facts | {"error": one_line(run.error, MAX_TEXT) if run.error else None}


def _when_it_runs() -> str:
    return "" if running_pid(Environment.read(os.environ).data) else NOT_RUNNING
