"""Erases a memory permanently from files, checkpoints and rows, in an order that may stop at any point.

Only the rows of the memory say what to erase, so they go last: until then the same command finds everything again.
After that only old pages of tables remain, which can be removed without knowing the words.
"""

import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import structlog

from gateway.app.storage.backup import recorded_backups
from gateway.app.storage.database import reach
from gateway.app.storage.restore import check_restore_finished
from gateway.background.upkeep.health import alone
from gateway.config.channels import enabled_channels
from gateway.config.data.erasures import (
    MEMBER,
    ErasureRequest,
    note_erasure_begun,
    note_erasure_finished,
    read_request,
    save_request,
    unfinished_erasures,
)
from gateway.config.data.files import read_regular
from gateway.config.data.instance import hold_instance, instance_id
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints, Step
from gateway.config.model import Config
from gateway.domain.conversation.transcript import Notice
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater, required
from gateway.domain.ids import MemoryId, PrincipalId
from gateway.domain.memory.erasing import Erasure, check_words
from gateway.domain.principals import Label, Role
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses, outbox
from gateway.store.delivery.outbox import OutboxPart
from gateway.store.memory import erasing
from gateway.store.memory.erasing import Origins
from gateway.store.migrate import check_schema
from gateway.store.people import principals
from gateway.store.transcript import messages
from gateway.workspace.erasing import Fate, Traces, rewrite_checkpoints
from gateway.workspace.files.index import INDEX_FOLDER
from gateway.workspace.locks import REPLACED

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """The rows, files and checkpoints that an erasure changes. The `backups` still have the text."""

    origins: Origins
    rows: Counter[str]
    left: Counter[str]
    """Rows of each column that keep the words: names that messengers and the owner gave."""
    files: Sequence[tuple[str, Fate]]
    checkpoints: int
    backups: Sequence[str]

    def lines(self, files: Sequence[str]) -> list[str]:
        """The findings in words, with these about the files."""
        rows = ", ".join(f"{count} of {table}" for table, count in sorted(self.rows.items()))
        backups = [f"still in the backup of {saved}, unless that is deleted" for saved in self.backups]
        history = [f"checkpoints rewritten: {self.checkpoints}"] if self.checkpoints else []
        left = sorted(self.left.items())
        names = [f"still in {column}, as a name that others need: {count}" for column, count in left]
        return [f"rows: {rows or 'none'}", *files, *history, *names, *backups]


class NothingToErase(OwnerMustAct):
    """The owner has no such memory, perhaps because it was erased."""


class _CountedOnly(Exception):
    """Rolls back the transaction of a rehearsal."""


async def erase(
    environment: Environment,
    config: Config,
    what: ErasureRequest,
    agree: Callable[[Found], None],
    *,
    held: bool = False,
) -> None:
    """Erase one of the owner's memories and its sources, quotes of these, and sentences with words of `also`.

    `agree` receives the findings, and raises to stop the erasure. Raises `OwnerMustAct` while a gateway runs, unless
    the caller has `held` its lock, and if the memory doesn't exist.
    """
    data, failpoints = environment.data, Failpoints(environment.fail)
    memory, also = MemoryId(what.memory or 0), what.also
    check_words(also)
    async with _alone(environment, config, held=held) as database:
        async with database.connection() as conn:
            owner = required(await principals.owner(conn), OwnerMustAct("there is no owner yet, and nothing to erase"))
            origins = await erasing.origins(conn, owner.id, memory)
        _check(unfinished_erasures(data), memory, len(also), origins)
        erasure = Erasure([*also, *origins.memories.values()], [*origins.memories.values(), *origins.messages.values()])
        key = read_regular(path) if (path := data / "keys" / "journal").exists() else b""
        traces = Traces(erasure, origins.entries, key, data, environment.workspace)
        files, history = traces.find(), data / "checkpoints"
        named = [(str(path.relative_to(traces.root_of(path) or data)), fate) for path, fate in files]
        kept = traces.without(files)
        versions = rewrite_checkpoints(history, kept, erasure.in_text)
        rows, left = await _rows(database, erasure, origins)
        agree(Found(origins, rows, left, named, versions, recorded_backups(data)))
        note_erasure_begun(data, memory, len(also))
        failpoints.reach(Step.ERASURE_BEGUN)
        rewrite_checkpoints(history, kept, erasure.in_text, lambda: failpoints.reach(Step.ERASURE_CHECKPOINTS))
        for path, fate in files:
            await _clean(database, traces, owner.id, path, fate)
            failpoints.reach(Step.ERASURE_FILE)
        await database.run(lambda tx: erasing.erase(tx, erasure, origins))
        failpoints.reach(Step.ERASURE_COMMITTED)
        await erasing.vacuum(database)
        failpoints.reach(Step.ERASURE_VACUUMED)
        note_erasure_finished(data, memory)


async def erase_as_requested(environment: Environment, config: Config) -> None:
    """Erase what the page asked for, and finish a member's erasure; the caller holds the lock.

    A kill leaves the rest to the next start. The receipt counts the files, whose names may hold the words. Raises
    `TryAgainLater`.
    """
    data, request, problem = environment.data, read_request(environment.data), ""
    try:
        if request.memory:
            await erase(environment, config, request, partial(_note, data, request), held=True)
        if account := read_request(data, MEMBER).member:
            await erase_person(environment, config, account, lambda _name: None, held=True)
    except TryAgainLater:
        raise
    except (SupaclawError, OSError) as exc:
        if not (isinstance(exc, NothingToErase) and request.receipt):  # else only the receipt was left to write
            problem = f"Not erased: {exc.strerror if isinstance(exc, OSError) else exc}"  # without a file's name
    except Exception as exc:  # a gateway that can't erase still has to start
        log.exception("erasure.failed")
        problem = f"Not erased: {type(exc).__name__}, a defect; the log shows where."
    save_request(data, ErasureRequest(receipt=problem or read_request(data).receipt))


def _note(data: Path, request: ErasureRequest, found: Found) -> None:
    """Store the receipt before anything is erased: a second try, after a kill, finds less."""
    files = Counter(f"files, {fate}" for _, fate in found.files)
    lines = found.lines([f"{fate}: {count}" for fate, count in files.items()])
    save_request(data, request.model_copy(update={"receipt": request.receipt or "\n".join(lines)}))


_RECEIPT = """\
Erased: all that was yours, {messages} messages in {sessions} conversations, {memories} rows of memory, {files} files.
What stays: your access and account, sums of costs, who approved what and when, and what you said in groups.
Messengers and models' providers keep what they have."""


async def erase_person(
    environment: Environment, config: Config, account: str, agree: Callable[[str], None], *, held: bool = False
) -> str:
    """Erase all that is a member's; returns the receipt, which they get when the gateway runs again.

    `agree` receives their name, and raises to stop the erasure. The next start finishes one that broke off. Raises
    `OwnerMustAct` while a gateway runs, unless the caller has `held` its lock, and for an account that is not a
    member's.
    """
    data, failpoints = environment.data, Failpoints(environment.fail)
    async with _alone(environment, config, held=held) as database:
        async with database.connection() as conn:
            person = await principals.find(conn, account)
            member = None if person is None else await principals.get(conn, person)
            if member is None or member.role is Role.OWNER:
                raise OwnerMustAct(f"{account} isn't a member's account; the page under People shows them")
            forks = await conn.fetch("select id from tasks where principal_id = $1", member.id)
        agree(f"{member.name} ({account})")
        folders = [data / name / str(member.id) for name in ("principals", INDEX_FOLDER, REPLACED)]
        folders += [data / "forks" / str(row["id"]) for row in forks]

        async def rows_and_files(tx: Connection) -> str:
            rows = await erasing.erase_person(tx, member.id)
            if (begun := read_request(data, MEMBER)).member != account:
                files = sum(path.is_file() for path in folders[0].rglob("*"))
                backups = [f"The backup of {saved} has it until that is deleted." for saved in recorded_backups(data)]
                receipt = " ".join([_RECEIPT.format_map({**rows, "files": files}), *backups])
                save_request(data, begun := ErasureRequest(member=account, receipt=receipt), MEMBER)
            for folder in filter(Path.exists, folders):
                shutil.rmtree(folder)
                failpoints.reach(Step.ERASURE_FILE)
            return begun.receipt

        receipt = await database.run(rows_and_files)
        failpoints.reach(Step.ERASURE_COMMITTED)
        await erasing.vacuum(database)
        await database.run(lambda tx: _hand_in(tx, member.id, receipt, enabled_channels(config.channels)))
        save_request(data, ErasureRequest(), MEMBER)
    return receipt


async def _hand_in(tx: Connection, person: PrincipalId, receipt: str, channels: Collection[str]) -> None:
    """Queue the receipt for the chat in which they wrote last."""
    if at := await addresses.notification_address(tx, person, channels, ""):
        row = await messages.say(tx, at.session_id, person, Notice(receipt), label=Label.OWNER, address=at.id)
        await outbox.put(tx, person, at.id, row.id, [OutboxPart(receipt)], notice=True)


@asynccontextmanager
async def _alone(environment: Environment, config: Config, *, held: bool = False) -> AsyncIterator[Database]:
    """The database, while no gateway uses it or the data folder, which may be `held` already, and no worker runs."""
    data = environment.data
    if not data.is_dir():
        raise OwnerMustAct(f"there is no gateway in {data} yet; is SUPACLAW_DATA right?")
    with nullcontext() if held else hold_instance(data):
        check_restore_finished(data)
        async with reach(environment, config, mine=True) as database:
            await check_schema(database)
            async with alone(database, instance_id(data)):
                yield database


def _check(unfinished: dict[int, int], memory: MemoryId, words: int, origins: Origins) -> None:
    if not origins.memories and memory not in unfinished:
        raise NothingToErase(f"There is no memory {memory}; `supaclaw memories list` and `supaclaw search` show them")
    if words < (before := unfinished.get(memory, 0)):
        raise OwnerMustAct(f"this erasure broke off with {before} --also; give the same again, so that it can finish")


async def _rows(database: Database, erasure: Erasure, origins: Origins) -> tuple[Counter[str], Counter[str]]:
    """The number of rows of each table that would change, and of each column that would keep something, found by
    changing them and rolling back.
    """
    rows, left = Counter[str](), Counter[str]()
    with suppress(_CountedOnly):
        async with database.transaction() as tx:
            rows, left = await erasing.erase(tx, erasure, origins), await erasing.left(tx, erasure)
            raise _CountedOnly
    return rows, left


async def _clean(database: Database, traces: Traces, owner: PrincipalId, path: Path, fate: Fate) -> None:
    """Clean a file, after the rows about it: as long as it has the words, it is known to be unfinished."""
    root = traces.root_of(path)
    if root is None or fate not in (Fate.REMOVED, Fate.CLEANED):
        traces.carry_out(path, fate)
        return
    principal = owner if root == traces.workspace else PrincipalId(UUID(root.name))
    inside, (before, after, size) = str(path.relative_to(root)), _change(traces, path)
    if fate is Fate.REMOVED:
        await database.run(lambda tx: erasing.forget_file(tx, principal, inside))
    else:
        await database.run(lambda tx: erasing.relabel(tx, principal, inside, before, after, size))
    traces.carry_out(path, fate)
    await database.run(lambda tx: erasing.forget_content(tx, principal, before))


def _change(traces: Traces, path: Path) -> tuple[str, str, int]:
    """The hash of a file's current content, and the hash and the size of its content after the erasure."""
    before = bytes(path.readlink()) if path.is_symlink() else path.read_bytes()
    after = traces.cleaned(before) or b""
    return sha256(before).hexdigest(), sha256(after).hexdigest(), len(after)
