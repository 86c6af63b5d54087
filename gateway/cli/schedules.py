"""`supaclaw schedules`: what the agent is to do later, or again and again."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import typer

from gateway.agent.scheduling.schedules import Asking, Schedules, line
from gateway.cli.database import the_owner, with_database
from gateway.cli.output import AsJson, print_json, print_rows
from gateway.config.environment import Environment
from gateway.config.instance import holder
from gateway.config.load import load
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import AddressId, PrincipalId, ScheduleId, TaskId
from gateway.domain.principals import Role
from gateway.domain.schedules import Misfire
from gateway.domain.texts import one_line
from gateway.store import addresses
from gateway.store.people import principals
from gateway.store.pool import Connection, Database
from gateway.store.scheduling import schedules as store
from gateway.store.scheduling.schedules import RunRow, ScheduleRow
from gateway.timetable.definition import Refused
from gateway.timetable.wording import in_words, local
from gateway.workspace.prompts import Persona
from gateway.workspace.tree import Workspace
from gateway.workspace.zone import zone_in

MOST = 10_000
"""Schedules in one list."""
LONGEST_TEXT = 4_000
COLUMNS = ("id", "name", "of", "when", "next_run_at", "state")
RUN_COLUMNS = ("slot", "executed_at", "produced_at", "delivered_at", "missed", "error")
NONE = "Nothing is to come. `supaclaw schedules list --all` shows what is paused or over, `add --help` how to add one."
NOT_RUNNING = "; no gateway runs on this machine's data, it happens when one does"
UTC_ASSUMED = "Your time zone is not known, so UTC was taken; set owner.timezone in config.json, or give --zone."

Result = TypeVar("Result")
Which = Annotated[str, typer.Argument(metavar="NUMBER|NAME", help="As in the list; a name is one of yours.")]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list; `of` is the member or group it belongs to, `task_id` that of its last run."""

    id: ScheduleId
    name: str
    of: str | None
    when: str
    next_run_at: datetime | None
    state: str
    prompt: str
    misfire: str
    include_session_history: bool
    origin: str
    task_id: TaskId | None


def show_all(
    everything: Annotated[bool, typer.Option("--all", help="Also those that are paused or over.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what is to come, of everybody."""

    async def read(database: Database) -> list[Row]:
        async with database.connection() as conn:
            rows = await store.listed(conn, None, everything=everything, limit=MOST)
            return await _rows(conn, rows)

    rows = with_database(read)
    if rows or as_json:
        print_rows(rows, COLUMNS, as_json=as_json)
    else:
        print(NONE)


def show(which: Which, as_json: AsJson = False) -> None:
    """Show one, and what became of its last runs."""

    async def read(mine: Schedules) -> tuple[Row, list[RunRow]]:
        row = await mine.get(which)
        [told] = await _rows(mine.tx, [row])
        return told, [_local(run, row.definition.zone) for run in await store.runs(mine.tx, row.id)]

    row, runs = _done(read)
    if as_json:
        print_json({**asdict(row), "runs": [asdict(run) for run in runs]})
        return
    for name, value in asdict(row).items():
        if value not in {None, ""}:
            # What others wrote stays on its line, and commands the terminal nothing.
            print(f"{name.replace('_', ' ').removesuffix(' at')}: {one_line(str(value), LONGEST_TEXT)}")
    if runs:
        print_rows(runs, RUN_COLUMNS, as_json=False)


def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called.")],
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="What the agent is told to do then.")],
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Once, such as 2027-03-01T09:00.")] = None,
    cron: Annotated[str | None, typer.Option(metavar="FIELDS", help='Again and again, such as "30 8 * * 1-5".')] = None,
    zone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Of that time, such as Europe/Berlin; else yours.")
    ] = None,
    misfire: Annotated[
        Misfire, typer.Option(help="Of the times that passed while nothing ran, the last one runs, none, or each.")
    ] = Misfire.RUN_ONCE,
    history: Annotated[bool, typer.Option("--history", help="The agent sees the chat it answers in.")] = False,
    to: Annotated[
        str | None,
        typer.Option(metavar="CHANNEL", help="Tells you there, such as telegram; else where you wrote last."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add one; without a time it waits until you `run` it."""

    async def write(mine: Schedules) -> ScheduleRow:
        asking = Asking("cli", await _address(mine.tx, mine.principal, to) if to else None)
        return await mine.add(
            asking,
            {
                "name": name,
                "prompt": prompt,
                "schedule_type": None if at is None and cron is None else "recurring" if at is None else "once",
                "run_at": at,
                "cron_expr": cron,
                "timezone": zone,
                "misfire": misfire.value,
                "include_session_history": history,
            },
        )

    _change(write, "added", as_json, _when_it_runs)
    if not as_json and (at or cron) and not (zone or _own_zone()):
        print(UTC_ASSUMED)


def run(which: Which, as_json: AsJson = False) -> None:
    """Run one now, once more than planned."""

    async def write(mine: Schedules) -> ScheduleRow:
        row, task = await mine.run(which)
        return replace(row, task_id=task)

    _change(write, "queued", as_json, _when_it_runs)


def pause(which: Which, as_json: AsJson = False) -> None:
    """Let one rest."""
    _change(lambda mine: mine.pause(which), "paused", as_json)


def resume(which: Which, as_json: AsJson = False) -> None:
    """Let one go on, with its next time from now."""
    _change(lambda mine: mine.resume(which), "goes on", as_json, _when_it_runs)


def remove(which: Which, as_json: AsJson = False) -> None:
    """Forget one, and what is known of its runs."""
    _change(lambda mine: mine.remove(which), "removed", as_json)


def _change(
    work: Callable[[Schedules], Awaitable[ScheduleRow]], done: str, as_json: bool, more: Callable[[], str] = str
) -> None:
    """Print which schedule `work` has changed, and how."""

    async def changed(mine: Schedules) -> tuple[ScheduleRow, Row]:
        row = await work(mine)
        [told] = await _rows(mine.tx, [row])
        return row, told

    row, told = _done(changed)
    if as_json:
        print_json(asdict(told))
    else:
        print(f"{done}: {line(row)}{more()}")


def _done(work: Callable[[Schedules], Awaitable[Result]]) -> Result:
    """What `work` makes of the owner's schedules; a number may be that of somebody else's."""

    async def worked(tx: Connection) -> Result:
        mine = (await the_owner(tx)).id
        return await work(Schedules(tx, mine, datetime.now(UTC), _own_zone(), of_all=True))

    try:
        return with_database(lambda database: database.run(worked))
    except Refused as refusal:
        raise OwnerMustAct(str(refusal)) from refusal


async def _address(tx: Connection, owner: PrincipalId, channel: str) -> AddressId:
    at = await addresses.last_spoken_at(tx, owner, channel)
    if at is None:
        known = ", ".join(await addresses.channels(tx, owner)) or "none yet"
        raise OwnerMustAct(f"you have not written on {channel} yet; channels with a chat: {known}")
    return at.id


async def _rows(conn: Connection, rows: Sequence[ScheduleRow]) -> list[Row]:
    people = [await principals.get(conn, each) for each in {row.principal_id for row in rows}]
    others = {each.id: each.name for each in people if each.role is not Role.OWNER}
    return [_row(row, others.get(row.principal_id)) for row in rows]


def _row(row: ScheduleRow, of: str | None) -> Row:
    definition = row.definition
    states = {"paused": row.paused_at, "over": row.completed_at, "failing": row.failing_since}
    return Row(
        row.id,
        definition.name,
        of,
        in_words(definition),
        local(row.next_run_at, definition.zone) if row.next_run_at else None,
        ", ".join(name for name, since in states.items() if since),
        definition.prompt,
        definition.misfire.value,
        definition.include_session_history,
        row.origin,
        row.task_id,
    )


def _local(run: RunRow, zone: str) -> RunRow:
    def there(at: datetime | None) -> datetime | None:
        return local(at, zone) if at else None

    return replace(
        run,
        slot=local(run.slot, zone),
        missed_since=there(run.missed_since),
        executed_at=there(run.executed_at),
        produced_at=there(run.produced_at),
        delivered_at=there(run.delivered_at),
        error=one_line(run.error, LONGEST_TEXT) if run.error else None,
    )


def _own_zone() -> str | None:
    environment = Environment.read(os.environ)
    owner, workspace = load(environment.config, os.environ).owner, Workspace(environment.workspace)
    return owner.timezone or zone_in(Persona(workspace).user(workspace))


def _when_it_runs() -> str:
    return "" if holder(Environment.read(os.environ).data) else NOT_RUNNING
