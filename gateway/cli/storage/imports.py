"""`supaclaw import`: import memories, conversations and tasks of other programs."""

import os
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gateway.background.budgets import FREE_ROWS, PAID_PREFIX, estimate_embedding
from gateway.cli.connections.database import leak_guard, owners_zone, require_owner, with_database
from gateway.cli.terminal.console import echo, progress_bar
from gateway.cli.terminal.output import AsJson, Yes, argument, ask_yes_or_no, confirm_unless, flag, option, print_json
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.errors import OwnerMustAct
from gateway.domain.memory.memories import DEFAULT_AGENT
from gateway.domain.text.texts import one_line
from gateway.domain.time import zone
from gateway.importers import ALL, Source, discover, parts_of, read_parts
from gateway.importers.passport import is_foreign, seal_of
from gateway.importers.records.files import Reader, total_bytes
from gateway.importers.records.writer import ImportWriter, Tally
from gateway.store.connection.pool import Database
from gateway.store.memory import indexing
from gateway.store.people.principals import PrincipalRow

SHOWN = 20
"""Most damaged places in a report."""
MAX_AGENT = 100
INDEXED = 500
"""Messages that are indexed in one transaction."""


def run(
    source: Annotated[str, argument("Such as chatgpt; `all` imports all that is found.", "SOURCE")],
    path: Annotated[Path, argument("The file or folder.", "PATH")],
    dry_run: Annotated[bool, flag("Only count what would be imported.", "--dry-run")] = False,
    own: Annotated[bool, flag("Treat messages in your name as your own words.", "--own")] = False,
    agent: Annotated[str | None, option("The agent that gets the memories (default: your own).", "NAME")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Import memories, conversations and tasks. Anything imported before is skipped."""
    sources = discover()
    if source not in {*sources, ALL}:
        raise OwnerMustAct(f'there is no source "{one_line(source, 40)}"; choose one of {", ".join([*sources, ALL])}')
    if own and (forged := [part.source for part in parts_of(source, path, sources) if sources[part.source].forgeable]):
        raise OwnerMustAct(f"anybody in a chat can forge the lines of {forged[0]}; import it without --own")
    if not (name := DEFAULT_AGENT if agent is None else one_line(agent, MAX_AGENT)):
        raise OwnerMustAct("the agent needs a name; leave --agent out for your own agent")

    async def work(database: Database) -> Tally:
        person = await database.read(require_owner)
        owner, files = person.id, reader(person)
        if any(is_foreign(part.path, files) for part in parts_of(source, path, sources)) and not dry_run:
            files = replace(files, vouched=yes or _vouched(path))
        clean, now = await leak_guard(database), datetime.now(UTC)
        new_writer = partial(ImportWriter, database, owner, name, now, own=own, clean=clean)
        model = load_early(Environment.read(os.environ), os.environ).models.embedding
        if model.startswith(PAID_PREFIX) and not (dry_run or yes):
            count = new_writer(dry_run=True)
            await store_parts(count, source, path, sources, files)
            _confirm(model, count.tally, path)
        writer = new_writer(dry_run=dry_run)
        with progress_bar("Importing", total_bytes(path), quiet=as_json) as advance:
            await store_parts(writer, source, path, sources, replace(files, advance=advance))
            if writer.tally.messages and not dry_run:
                await make_findable(database)
        return writer.tally

    _report(with_database(work), path, source, sources, dry_run=dry_run, as_json=as_json)


def _confirm(model: str, tally: Tally, path: Path) -> None:
    """Ask before much is embedded; the size of the files is an upper bound of the text."""
    if (rows := tally.messages + tally.memories + tally.learnings) > FREE_ROWS:
        cost = estimate_embedding(model, rows, total_bytes(path))
        question = f"{cost} will be embedded by {model}. Import them?"
        confirm_unless(False, question, f"{cost} would be embedded by {model}; add --yes to confirm")


def _vouched(path: Path) -> bool:
    """Ask whether memories that this gateway has not sealed are known; where nobody can answer they are untrusted."""
    question = f"{path} was not written by this gateway. Take its memories as known, not as untrusted?"
    return sys.stdin.isatty() and ask_yes_or_no(question)


def reader(owner: PrincipalRow) -> Reader:
    """A reader of the owner's files, whose times are in their zone."""
    seal = seal_of(Environment.read(os.environ).data, owner.id)
    return Reader(zone(owners_zone() or "UTC"), own=frozenset(owner.identities), seal=seal)


async def store_parts(writer: ImportWriter, source: str, path: Path, sources: dict[str, Source], files: Reader) -> None:
    """Store the records of a path, read by a source and by the sources of the files in it."""
    for part, records in read_parts(source, path, sources, files):
        await writer.store(part.source, records, labelled=sources[part.source].labelled)


async def make_findable(database: Database) -> None:
    """Index imported messages for search, as a running gateway does."""
    while await database.run(lambda tx: indexing.index_turns(tx, None, INDEXED)):
        pass


def _report(tally: Tally, path: Path, source: str, sources: dict[str, Source], *, dry_run: bool, as_json: bool) -> None:
    """Print the result of an import; the exit code is 1 if anything is damaged."""
    if not tally.found and not tally.damaged:
        expected = sources[source].expects if source in sources else "something to import"
        raise OwnerMustAct(f"nothing was found in {path}; expected {expected}")
    if as_json:
        print_json({**asdict(tally), "passed": dict(tally.passed), "dry_run": dry_run})
    else:
        messages = f" ({tally.messages} message{'s' * (tally.messages != 1)})" * bool(tally.messages)
        echo(f"{'Would import' if dry_run else 'Imported'}: {tally}{messages}")
        if tally.proposals:
            echo("Instructions are proposals: /memory shows them for a week, /memory keep NUMBER accepts one")
        left = {"imported before": tally.known, **tally.passed}
        if any(left.values()):
            echo(f"Left out: {', '.join(f'{count} {why}' for why, count in left.items() if count)}")
    for damaged in tally.damaged[:SHOWN]:
        echo(f"supaclaw: {one_line(f'{damaged.place}: {damaged.why}', 500)}", error=True)
    if more := len(tally.damaged) + tally.more_damaged - len(tally.damaged[:SHOWN]):
        echo(f"supaclaw: and {more} more like these", error=True)
    if tally.damaged:
        raise typer.Exit(1)
