"""Acceptance of messages from channels: decide, journal, store. Acknowledged means committed, or on disk."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain, groupby
from typing import TypeAlias
from uuid import UUID, uuid4, uuid5

import structlog
from cachetools import LRUCache

from gateway.agent.memory.search import QUESTION_CHARACTERS
from gateway.config.failpoints import Step
from gateway.domain.channels.routing import Decision, Edit, Ignore, RunCommand, StartTurn, decide
from gateway.domain.conversation.inbound import LOCAL, Address, Arrival, Inbound, Sender
from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.domain.ids import EntryId, InboxId
from gateway.domain.principals import Role
from gateway.domain.time import Clock
from gateway.flow.engine import Engine
from gateway.flow.inbound.persistence import Accepted, InboundWriter, delay, is_plain
from gateway.flow.inbound.spool import Outages, Quarantine, Spool
from gateway.flow.journal.journal import Journal
from gateway.flow.live import MessageStored
from gateway.flow.outbound.parts import send_notice
from gateway.flow.outbound.proactive import Notices
from gateway.flow.secrets.guard import Clean, clean_inbound
from gateway.logs.errors import logged
from gateway.store.connection.pool import Connection, Database, is_urgent
from gateway.store.delivery import addresses
from gateway.store.errors import reaching
from gateway.store.work import steps, tasks
from gateway.workspace.journal.files import Place

REHEARSAL_SECONDS = 5.0


class _Rehearsed(SupaclawError):
    """Rolls the rehearsal back."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Whether the database could store and answer a message now; tried in a transaction that is rolled back."""

    database: Database
    writer: InboundWriter
    clock: Clock

    async def succeeds(self) -> bool:
        """Whether a message of the owner in a new chat could be stored and answered now."""
        id = uuid4()
        at = Address("terminal", LOCAL, f"rehearsal-{id}")
        said = Inbound(
            at, Sender(LOCAL, "rehearsal"), "rehearsal", str(id), self.clock.now(), private=True, as_owner=True
        )
        try:
            with reaching():  # an error here would meet any message
                async with asyncio.timeout(REHEARSAL_SECONDS):
                    await self.database.run(lambda tx: self._write(tx, Arrival(EntryId(id), said, said.sent_at)))
        except _Rehearsed:
            return True
        except TryAgainLater:
            pass
        return False

    async def _write(self, tx: Connection, arrival: Arrival) -> None:
        await self.writer.write(tx, arrival, None, Role.OWNER, StartTurn())
        more = replace(arrival.inbound, platform_id=f"{arrival.inbound.platform_id}-2")
        await self.writer.accept(tx, [(Arrival(EntryId(uuid4()), more, arrival.at), Role.OWNER)])
        at = await addresses.lock(tx, arrival.inbound.address)
        assert at is not None, "it was just added"
        await send_notice(tx, at, "rehearsal", 100)
        if task := await tasks.live_chat(tx, at.session_id):
            await steps.note(tx, task, at.principal_id, "tool", "rehearsal")
        raise _Rehearsed


MAX_REMEMBERED = 1_000
MAX_HELD = 50
"""Parts of one sender that wait for a message which names the agent."""
TOGETHER = timedelta(seconds=2)
"""Between parts of one thought; an app sends them at once, and some platforms give whole seconds."""

_Key: TypeAlias = tuple[Address, str]


class Companions:
    """Completes addressed messages with what their sender sent at the same moment.

    It is kept in memory only: the rest of what a group says is never stored.
    """

    def __init__(self) -> None:
        self._addressed: LRUCache[_Key, Inbound] = LRUCache(MAX_REMEMBERED)
        self._albums: LRUCache[tuple[Address, str], bool] = LRUCache(MAX_REMEMBERED)
        self._held: LRUCache[_Key, tuple[Inbound, ...]] = LRUCache(MAX_REMEMBERED)

    def complete(self, inbound: Inbound) -> tuple[Inbound, ...]:
        """The message, behind earlier parts that it makes addressed; itself addressed if it belongs to one that is."""
        if inbound.private or inbound.edits is not None:
            return (inbound,)
        begins = inbound.address.thread == inbound.platform_id  # a thread of its own, as in Slack's channels
        who = (replace(inbound.address, thread="") if begins else inbound.address), inbound.sender.id
        if inbound.addressed:
            return (*self._earlier(who, inbound), inbound)
        if not (inbound.album or inbound.forwarded or inbound.attachments):
            return (inbound,)
        named = self._addressed.get(who)
        if named is not None and (_together(named, inbound) or (inbound.address, inbound.album) in self._albums):
            return (_beside(named, inbound),)
        self._held[who] = (*self._held.get(who, ()), inbound)[-MAX_HELD:]
        return (inbound,)

    def _earlier(self, who: _Key, inbound: Inbound) -> tuple[Inbound, ...]:
        """Kept, because a message that can't be stored comes again without them; stored ones are recognised."""
        self._addressed[who] = inbound
        if inbound.album:
            self._albums[inbound.address, inbound.album] = True
        return tuple(_beside(inbound, part) for part in self._held.get(who, ()) if _together(part, inbound))


def _beside(named: Inbound, part: Inbound) -> Inbound:
    """The part, in the conversation with the agent and under the name that its sender has there."""
    return replace(part, addressed=True, address=named.address, sender=named.sender)


def _together(one: Inbound, other: Inbound) -> bool:
    return (one.album == other.album != "") or abs(one.sent_at - other.sent_at) <= TOGETHER


MAX_SEEN_REMEMBERED = 1_000
CHATS_AT_ONCE = 6
"""Chats whose messages are stored concurrently, so that connections are left for answers."""
COMMANDS_AT_ONCE = 2
"""Chats that begin with a command, besides: /stop waits for no other chat's messages."""
_ENTRIES = UUID("6f1f7c50-6d6e-4b0f-9a3c-5d2f6a2f0c11")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Part:
    """A message at its place in a batch; `followed` if its chat says more behind it."""

    place: int
    inbound: Inbound
    followed: bool


@dataclass(slots=True)
class _New:
    """A message that this process hasn't stored yet; once it is `written`, the journal has it at `place`."""

    key: tuple[str, ...]
    arrival: Arrival
    role: Role
    decision: Decision
    place: Place | None = None
    written: bool = False


@dataclass
class InboundFlow:
    """Accepts batches of messages from channels."""

    engine: Engine
    commands: Set[str]
    run_command: Callable[[InboxId], Awaitable[bool]]
    writer: InboundWriter
    rehearsal: Rehearsal
    journal: Journal
    outages: Outages
    notices: Notices
    clean: Clean
    expect: Callable[[str], None]
    """Called with the question that the turn of a message will probably ask of memory."""

    def __post_init__(self) -> None:
        store, put_aside = self._try_to_store, self._put_aside
        self.spool = Spool(self.journal, self.outages, store, put_aside, self.rehearsal.succeeds)
        self._quarantine = Quarantine()
        self._storing, self._commanding = asyncio.Semaphore(CHATS_AT_ONCE), asyncio.Semaphore(COMMANDS_AT_ONCE)
        self._companions = Companions()
        self._seen: LRUCache[tuple[str, ...], Accepted] = LRUCache(MAX_SEEN_REMEMBERED)

    async def accept(self, batch: Sequence[Inbound]) -> tuple[Accepted, ...]:
        """Store a batch, each chat's messages in order; a command takes effect before the next message is read.

        Plain messages in a row are stored together, and the owner's chats begin.

        On return all are committed, or on disk while the database is unavailable. Raises `TryAgainLater` if the batch
        may not be acknowledged; messages that are stored already are recognised when they come again.
        """
        chats: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
        for place, inbound in enumerate(batch):
            chats[_chat(inbound)].append(place)
        owners_first = sorted(chats.values(), key=lambda places: self._decide(batch[places[0]])[0] is not Role.OWNER)
        accepted: dict[int, Accepted] = {}

        async def one_chat(places: Sequence[int]) -> None:
            is_command = isinstance(self._decide(batch[places[0]])[1], RunCommand)
            is_urgent.set(is_command)  # each chat is a task of its own
            async with self._commanding if is_command else self._storing:
                parts = chain.from_iterable(self._parts(batch[at], at, at == places[-1]) for at in places)
                for _, together in groupby(parts, self._alike):
                    said = list(together)
                    accepted.update(zip((part.place for part in said), await self._accept(said), strict=True))

        for failure in await asyncio.gather(*map(one_chat, owners_first), return_exceptions=True):
            if failure is not None:
                raise failure
        return tuple(accepted[place] for place in range(len(batch)))

    async def restore(self, found: Sequence[tuple[Arrival, Place]]) -> None:
        """Store what only the journal has, in order; during an outage it is spooled before new messages."""
        for arrival, place in found:
            try:
                if self.spool.waiting or await self._try_to_store(arrival, place) is None:
                    await self.spool.add(arrival, place)
            except TryAgainLater:
                raise
            except Exception:  # it stays in the journal for the next start
                log.exception("inbound.not_restored", entry=str(arrival.id))

    async def requeue(self) -> int:
        """Retry the messages that were set aside. Returns their number; raises `TryAgainLater` while others wait."""
        if self.spool.waiting:
            raise TryAgainLater("messages are already waiting for the database and will be stored when it is back")
        found = await self.journal.unstored()
        await self.restore(found)
        return len(found)

    def forget(self) -> None:
        """Free memory; the database has every key."""
        self._seen.clear()

    def _parts(self, inbound: Inbound, place: int, last: bool) -> Iterator[_Part]:
        """The message behind earlier parts that it completes; all but the `last` one are followed by another."""
        said = clean_inbound(inbound, self.clean)
        for part in self._companions.complete(said):
            yield _Part(place, part, followed=not last or part is not said)

    def _alike(self, part: _Part) -> object:
        """Equal for messages that one statement can store."""
        plain = isinstance(self._decide(part.inbound)[1], StartTurn) and is_plain(part.inbound)
        return part.inbound.address if plain else part

    async def _accept(self, parts: Sequence[_Part]) -> list[Accepted]:
        met = [self._met(part) for part in parts]
        new = [each for each in met if isinstance(each, _New)]
        stored = iter(await self._store_together(new))
        return [each if isinstance(each, Accepted) else await self._settled(each, next(stored)) for each in met]

    def _met(self, part: _Part) -> "Accepted | _New":
        self.engine.failpoints.reach(Step.INBOUND_RECEIVED)
        key = (*_chat(part.inbound), part.inbound.platform_id)
        if (seen := self._seen.get(key)) is not None:
            known = seen.later.result() if seen.later is not None and seen.later.done() else seen
            return replace(known, duplicate=True)
        role, decision = self._decide(part.inbound)
        if isinstance(decision, Ignore):
            return Accepted(decision)
        if isinstance(decision, StartTurn):
            self.expect(part.inbound.text[-QUESTION_CHARACTERS:])
        id = EntryId(uuid5(_ENTRIES, "\n".join(key)))  # the same each time the same message arrives
        arrival = Arrival(id, part.inbound, self.engine.clock.now(), part.followed)
        return _New(key, arrival, role, decision)

    async def _store_together(self, new: Sequence[_New]) -> Sequence[Accepted | None]:
        """Store plain messages of one address in one statement; None for each that has to be stored alone."""
        alone: Sequence[None] = [None] * len(new)
        if len(new) < 2 or self.spool.waiting or not all(isinstance(each.decision, StartTurn) for each in new):
            return alone
        try:
            for each in new:
                await self._write(each)
            if any(self.journal.is_fresh(each.place) for each in new):
                return alone
            said = [(each.arrival, each.role) for each in new]
            stored = await self.engine.database.run_alone(lambda conn: self.writer.accept(conn, said))
        except Exception as exc:  # one of them may be the cause
            log.warning("inbound.stored_singly", exc_info=not isinstance(exc, TryAgainLater))
            return alone
        for each, accepted in zip(new, stored, strict=True):
            if accepted is not None:
                await self._stored(each.arrival, each.place, accepted)
        return stored

    async def _settled(self, new: _New, stored: Accepted | None) -> Accepted:
        """Store it alone, if it is not `stored`."""
        try:
            accepted = stored or await self._keep(new)
        except TryAgainLater:
            raise
        except Exception as exc:
            if not self._quarantine.give_up(new.key):
                raise
            accepted = await self._put_aside(new.arrival, exc)
        self._seen[new.key] = accepted
        return accepted

    async def _write(self, new: _New) -> None:
        """Write it to the journal, once."""
        if not new.written:
            new.place, new.written = await self.journal.write(new.arrival, new.role), True
            self.engine.failpoints.reach(Step.INBOUND_JOURNALED)

    def _decide(self, inbound: Inbound) -> tuple[Role, Decision]:
        role = self.engine.people.role(inbound)
        return role, decide(inbound, role, self.commands)

    async def _keep(self, new: _New) -> Accepted:
        """Write to the journal, then to the database; during an outage the message is spooled."""
        await self._write(new)
        if not self.spool.waiting and (accepted := await self._try_to_store(new.arrival, new.place)) is not None:
            return accepted
        later = await self.spool.add(new.arrival, new.place)
        self.engine.failpoints.reach(Step.INBOUND_SPOOLED)
        return Accepted(new.decision, later=later)

    async def _put_aside(self, arrival: Arrival, exc: Exception) -> Accepted:
        """Acknowledge a message that keeps failing, so that later ones can be stored."""
        channel = arrival.inbound.address.channel
        log.error("inbound.quarantined", entry=str(arrival.id), channel=channel, error=f"{type(exc).__name__}: {exc}")
        with logged(log, "inbound.owner_not_told"):  # the same fault may stop the notice
            await self.notices.tell_owner(
                f"A message on {channel} couldn't be stored and was set aside: {type(exc).__name__}. "
                "Its text is in sessions/; the log says why."
            )
        return Accepted(Ignore("quarantined"))

    async def _try_to_store(self, arrival: Arrival, place: Place | None) -> Accepted | None:
        """None while the database is unavailable; raises if the message itself can't be stored."""
        try:
            return await self._store(arrival, place)
        except TryAgainLater as exc:
            log.warning("inbound.database", error=str(exc))
        except Exception as exc:
            if await self.rehearsal.succeeds():
                raise
            log.warning("inbound.database", error=f"{type(exc).__name__}: {exc}")
        return None

    async def _store(self, arrival: Arrival, place: Place | None) -> Accepted:
        role, decision = self._decide(arrival.inbound)
        if isinstance(decision, Ignore):
            self.journal.stored(arrival, place, None)
            return Accepted(decision)
        accepted = await self.writer.store(self.engine.database, arrival, place, role, decision)
        await self._stored(arrival, place, accepted)
        return accepted

    async def _stored(self, arrival: Arrival, place: Place | None, accepted: Accepted) -> None:
        self.engine.failpoints.reach(Step.INBOUND_COMMITTED)
        self.journal.stored(arrival, place, accepted.session_id)
        if accepted.duplicate:  # the reply to its commit may have been lost
            self.engine.signals.tasks.set()
        await self._follow(accepted, arrival)

    async def _follow(self, accepted: Accepted, arrival: Arrival) -> None:
        match accepted.decision:
            case RunCommand() if accepted.inbox_id is not None:
                # Also for a duplicate: only its row knows whether its effect was committed.
                if not await self.run_command(accepted.inbox_id):
                    raise TryAgainLater("a command waits for the database, and what follows it waits with it")
                self.engine.signals.tasks.set()  # the command may have queued a turn
            case Edit() if accepted.message_id is None:
                self.engine.signals.outbox.set()  # it may have got a notice
            case StartTurn() | Edit() if accepted.message_id is not None and not accepted.duplicate:
                self.engine.signals.tasks.set()
                if isinstance(accepted.decision, Edit):
                    self.engine.signals.outbox.set()  # it may have closed a question
                if wait := delay(arrival):
                    asyncio.get_running_loop().call_later(wait, self.engine.signals.tasks.set)
                if accepted.session_id is not None:
                    self.engine.live.publish(accepted.session_id, MessageStored(accepted.message_id))
            case _:
                pass


def _chat(inbound: Inbound) -> tuple[str, str, str]:
    return inbound.address.channel, inbound.address.account, inbound.address.chat
