"""`supaclaw schedules`: what the agent is to do later, or again and again."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import typer

from gateway.agent.schedules import Asking, Schedules
from gateway.cli.database import with_database
from gateway.cli.output import AsJson, print_json, print_rows
from gateway.config.environment import Environment
from gateway.config.instance import holder
from gateway.config.load import load
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import AddressId, PrincipalId, ScheduleId
from gateway.domain.principals import Role
from gateway.domain.schedules import Misfire
from gateway.store import addresses, principals
from gateway.store import schedules as store
from gateway.store.pool import Connection, Database
from gateway.store.schedules import RunRow, ScheduleRow
from gateway.timetable.definition import Refused
from gateway.timetable.wording import in_words
from gateway.workspace.prompts import Persona
from gateway.workspace.tree import Workspace
from gateway.workspace.zone import zone_in

MOST = 1_000
"""Schedules in one list."""
COLUMNS = ("id", "name", "of", "when", "next_run_at", "state")
RUN_COLUMNS = ("slot", "executed_at", "produced_at", "delivered_at", "missed", "error")
NOT_RUNNING = "; no gateway runs on this machine's data, it happens when one does"

Result = TypeVar("Result")
Which = Annotated[str, typer.Argument(metavar="NUMBER|NAME", help="As in the list; a name is one of yours.")]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list; `of` is the member or group it belongs to."""

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


def show_all(
    everything: Annotated[bool, typer.Option("--all", help="Those that are paused or over too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what is to come, of everybody."""

    async def read(database: Database) -> list[Row]:
        async with database.connection() as conn:
            rows = await store.listed(conn, None, everything=everything, limit=MOST)
            return await _rows(conn, rows)

    print_rows(with_database(read), COLUMNS, as_json=as_json)


def show(which: Which, as_json: AsJson = False) -> None:
    """Show one, and what became of its last runs."""

    async def read(mine: Schedules) -> tuple[Row, list[RunRow]]:
        row = await mine.get(which)
        [told] = await _rows(mine.tx, [row])
        return told, await store.runs(mine.tx, row.id)

    row, runs = _done(read)
    if as_json:
        print_json({**asdict(row), "runs": [asdict(run) for run in runs]})
        return
    told = [f"{name.replace('_', ' ')}: {value}" for name, value in asdict(row).items() if value not in {None, ""}]
    print("\n".join(told))
    print_rows(runs, RUN_COLUMNS, as_json=False)


def add(
    name: Annotated[str, typer.Argument(help="What it is called.")],
    prompt: Annotated[str, typer.Option(help="What the agent is told to do then.")],
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Once: 2026-11-22T09:00.")] = None,
    cron: Annotated[str | None, typer.Option(metavar="FIELDS", help='Again and again: "30 8 * * 1-5".')] = None,
    zone: Annotated[str | None, typer.Option(help="Of these times, such as Europe/Berlin; without it yours.")] = None,
    misfire: Annotated[Misfire, typer.Option(help="What becomes of times that nothing ran at.")] = Misfire.RUN_ONCE,
    history: Annotated[bool, typer.Option("--history", help="With the conversation it is sent to.")] = False,
    to: Annotated[
        str | None, typer.Option(metavar="CHANNEL", help="Where you are told; else where you wrote last.")
    ] = None,
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

    print(f"{_line(_done(write))}{_when_it_runs()}")


def run(which: Which) -> None:
    """Run one now, once more than planned."""

    async def write(mine: Schedules) -> ScheduleRow:
        row, _task = await mine.run(which)
        return row

    print(f"{_line(_done(write))}: queued{_when_it_runs()}")


def pause(which: Which) -> None:
    """Let one rest."""
    print(f"{_line(_done(lambda mine: mine.pause(which)))}: paused")


def resume(which: Which) -> None:
    """Let one go on, with its next time from now."""
    print(f"{_line(_done(lambda mine: mine.resume(which)))}{_when_it_runs()}")


def remove(which: Which) -> None:
    """Forget one, and what is known of its runs."""
    print(f"{_line(_done(lambda mine: mine.remove(which)))}: removed")


def _done(work: Callable[[Schedules], Awaitable[Result]]) -> Result:
    """What `work` makes of the owner's schedules; a number may be that of somebody else's."""

    async def worked(tx: Connection) -> Result:
        owner = await principals.owner(tx)
        if owner is None:
            raise OwnerMustAct("nobody owns this gateway yet; start it once with `supaclaw up`")
        return await work(Schedules(tx, owner.id, datetime.now(UTC), _own_zone(), of_all=True))

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
        row.next_run_at,
        ", ".join(name for name, since in states.items() if since),
        definition.prompt,
        definition.misfire.value,
        definition.include_session_history,
        row.origin,
    )


def _line(row: ScheduleRow) -> str:
    return f"{row.id}: {row.definition.name}, {in_words(row.definition)}"


def _own_zone() -> str | None:
    environment = Environment.read(os.environ)
    owner = load(environment.config, os.environ).owner
    return owner.timezone or zone_in(Persona(Workspace(environment.workspace)).load().user)


def _when_it_runs() -> str:
    return "" if holder(Environment.read(os.environ).data) else NOT_RUNNING
