"""Inbound: decide, keep in the journal, then store in one transaction. Acknowledged means committed, or on disk."""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never
from uuid import UUID, uuid5

import structlog

from gateway.config.failpoints import Failpoints, Step
from gateway.domain import digest
from gateway.domain.clock import Clock
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import AddressId, EntryId, InboxId, InstanceId, MessageId, SessionId
from gateway.domain.inbound import Arrival, Attachment, Earlier, Inbound
from gateway.domain.principals import Label, Role, label_of
from gateway.domain.routing import Decision, Edit, Ignore, RunCommand, StartTurn, Steer, decide
from gateway.domain.tasks import Lane
from gateway.domain.transcript import AssistantText, UserText
from gateway.flow.journal.journal import Journal
from gateway.flow.live import Live, MessageStored
from gateway.flow.outages import Outages
from gateway.flow.people import OWN_CHANNELS, People
from gateway.flow.quarantine import Quarantine
from gateway.flow.spool import Spool
from gateway.store import addresses, attachments, inbox, messages, sessions, tasks
from gateway.store.addresses import AddressRow
from gateway.store.pool import Connection, Database
from gateway.workspace.journal.files import Place

REMEMBERED = 1_000
CHATS_AT_ONCE = 8
"""Whose messages are stored side by side; the others have connections left to answer with."""
MOST_FILES = 50
"""Files of one message that are looked at."""
ALBUM_SECONDS = 1.0
"""How long the parts of an album may come apart."""
QUOTED = 1_000
"""Characters of a message that another one replies to."""
_ENTRIES = UUID("6f1f7c50-6d6e-4b0f-9a3c-5d2f6a2f0c11")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of one inbound message; only what was stored has ids. `later` is for what waits in the spool."""

    decision: Decision
    inbox_id: InboxId | None = None
    address_id: AddressId | None = None
    session_id: SessionId | None = None
    message_id: MessageId | None = None
    duplicate: bool = False
    later: "asyncio.Future[Accepted] | None" = field(default=None, compare=False)

    async def stored(self) -> "Accepted":
        """The same once the database has it."""
        return self if self.later is None else await asyncio.shield(self.later)


class Wake(Protocol):
    """Tells the worker that there is something to claim."""

    def __call__(self) -> None:
        """Never blocks."""
        ...


class RunsCommands(Protocol):
    """The dispatcher, as inbound sees it."""

    async def run(self, arrival: InboxId) -> bool:
        """Commit the effect of a stored command; never raises for what the command does."""
        ...


class TellsOwner(Protocol):
    """The notices, as inbound sees them."""

    async def tell_owner(self, text: str) -> None:
        """Store and send a notice."""
        ...


class InboundFlow:
    """The door every channel hands its messages to."""

    def __init__(
        self,
        database: Database,
        people: People,
        commands: Set[str],
        dispatch: RunsCommands,
        wake: Wake,
        live: Live,
        instance: InstanceId,
        failpoints: Failpoints,
        journal: Journal,
        outages: Outages,
        notices: TellsOwner,
        clock: Clock,
    ) -> None:
        self._database = database
        self._people = people
        self._commands = commands
        self._dispatch = dispatch
        self._wake = wake
        self._live = live
        self._instance = instance
        self._failpoints = failpoints
        self._journal = journal
        self._notices = notices
        self._clock = clock
        self._spool = Spool[Accepted](journal, outages, self._store, self._put_aside)
        self._quarantine = Quarantine()
        self._busy = asyncio.Semaphore(CHATS_AT_ONCE)
        self._seen: OrderedDict[tuple[str, ...], Accepted] = OrderedDict()

    async def accept(self, batch: Sequence[Inbound]) -> tuple[Accepted, ...]:
        """Store a batch, each chat's messages in order; a command takes effect before what follows it is looked at.

        Returning means committed, or on disk while the database is away. Raises `TryAgainLater` when the batch may not
        be acknowledged; what was stored already is recognised when it comes again.
        """
        chats: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
        for place, inbound in enumerate(batch):
            chats[_chat(inbound)].append(place)
        accepted: dict[int, Accepted] = {}

        async def one_chat(places: Sequence[int]) -> None:
            async with self._busy:
                for place in places:
                    accepted[place] = await self._accept(batch[place])

        for failure in await asyncio.gather(*map(one_chat, chats.values()), return_exceptions=True):
            if failure is not None:
                raise failure
        return tuple(accepted[place] for place in range(len(batch)))

    async def restore(self, found: Sequence[tuple[Arrival, Place]]) -> None:
        """Store what a crash left in the journal alone, in order; raises `TryAgainLater`."""
        for arrival, place in found:
            try:
                await self._store(arrival, place)
            except TryAgainLater:
                raise
            except Exception:  # it stays in the journal; nothing behind it may suffer
                log.exception("inbound.not_restored", entry=str(arrival.id))

    async def run(self) -> None:
        """Store what waits for the database, until cancelled."""
        await self._spool.run()

    def forget(self) -> None:
        """Give memory back: the database knows what it has seen."""
        self._seen.clear()

    async def _accept(self, inbound: Inbound) -> Accepted:
        self._failpoints.reach(Step.INBOUND_RECEIVED)
        key = (*_chat(inbound), inbound.platform_id)
        if (seen := self._seen.get(key)) is not None:
            known = seen.later.result() if seen.later is not None and seen.later.done() else seen
            return replace(known, duplicate=True)
        role, decision = self._decide(inbound)
        if isinstance(decision, Ignore):
            return Accepted(decision)
        arrival = Arrival(_entry_id(key), inbound, self._clock.now())
        try:
            accepted = await self._keep(arrival, role, decision)
        except TryAgainLater:
            raise
        except Exception as exc:
            if not self._quarantine.give_up(key):
                raise
            accepted = await self._put_aside(arrival, exc)
        self._remember(key, accepted)
        return accepted

    def _decide(self, inbound: Inbound) -> tuple[Role, Decision]:
        role = self._people.role(inbound)
        return role, decide(inbound, role, self._commands, turn_running=self._live.answering(inbound.address))

    async def _keep(self, arrival: Arrival, role: Role, decision: Decision) -> Accepted:
        """In the journal, then in the database; what meets an outage queues up behind what did before it."""
        place = await self._journal.write(arrival, role)
        self._failpoints.reach(Step.INBOUND_JOURNALED)
        if not self._spool.waiting:
            try:
                return await self._store(arrival, place)
            except TryAgainLater as exc:
                log.warning("inbound.database", error=str(exc))
        later = await self._spool.add(arrival, place)
        self._failpoints.reach(Step.INBOUND_SPOOLED)
        return Accepted(decision, later=later)

    async def _put_aside(self, arrival: Arrival, exc: Exception) -> Accepted:
        """Acknowledge what failed again and again, so that what comes after it gets its turn."""
        channel = arrival.inbound.address.channel
        log.error("inbound.quarantined", entry=str(arrival.id), channel=channel, error=f"{type(exc).__name__}: {exc}")
        try:
            await self._notices.tell_owner(
                f"A message on {channel} could not be stored and is put aside: {type(exc).__name__}. "
                "Its text is in sessions/, the reason in the log."
            )
        except Exception:  # what keeps a message from being stored may keep a notice from it as well
            log.exception("inbound.owner_not_told")
        return Accepted(Ignore("quarantined"))

    async def _store(self, arrival: Arrival, place: Place | None) -> Accepted:
        role, decision = self._decide(arrival.inbound)
        if isinstance(decision, Ignore):
            self._journal.stored(arrival, place, None)
            return Accepted(decision)
        accepted = await self._database.run(lambda tx: self._enter(tx, arrival, place, role, decision))
        self._failpoints.reach(Step.INBOUND_COMMITTED)
        self._journal.stored(arrival, place, accepted.session_id)
        await self._follow(accepted, arrival)
        return accepted

    async def _enter(
        self, tx: Connection, arrival: Arrival, place: Place | None, role: Role, decision: Decision
    ) -> Accepted:
        inbound = arrival.inbound
        if isinstance(decision, Edit) and await addresses.find(tx, inbound.address) is None:
            return Accepted(Ignore("edit of something unknown"))
        at = await self._locked_address(tx, inbound, role)
        if place is not None:
            await self._journal.bind(tx, at, place)
        kind = inbox.kind_of(decision)
        arrived = await inbox.enter(tx, inbound, kind, at, arrival.id, handled=kind != "command")
        if arrived is None:
            return await _seen_before(tx, inbound, decision)
        accepted = Accepted(decision, arrived, at.id, at.session_id)
        match decision:
            case StartTurn() | Steer():
                return replace(accepted, message_id=await self._queue(tx, at, arrived, arrival, role))
            case Edit(platform_id):
                edited = await messages.replace_unread(tx, at.id, platform_id, _as_said(inbound).text)
                return replace(accepted, message_id=edited)
            case RunCommand() | Ignore():
                return accepted
            case _:
                assert_never(decision)

    async def _queue(self, tx: Connection, at: AddressRow, arrived: InboxId, arrival: Arrival, role: Role) -> MessageId:
        inbound = _as_said(arrival.inbound)
        label = Label.UNTRUSTED if inbound.attachments else label_of(role, private=inbound.private)
        message = await messages.join(tx, at.id, inbound.album, inbound.text) if inbound.album else None
        if message is None:
            message = await messages.receive(tx, at.session_id, at.principal_id, at.id, inbound, label, arrival.id)
        await inbox.became(tx, arrived, message)
        if inbound.attachments:
            await self._attach(tx, at, message, inbound.attachments)
        if label > Label.OWNER:
            await sessions.taint(tx, at.session_id, label)
        delay = ALBUM_SECONDS if inbound.album else 0.0
        await tasks.create_chat(tx, at.principal_id, at.session_id, self._instance, delay=delay)
        return message

    async def _attach(
        self, tx: Connection, at: AddressRow, message: MessageId, announced: Sequence[Attachment]
    ) -> None:
        """Note the files of a message and have them brought in; on our own channels they were stored beforehand."""
        add = attachments.add_kept if at.channel in OWN_CHANNELS else attachments.add
        await add(tx, at.principal_id, message, at.channel, announced[:MOST_FILES])
        await tasks.create(
            tx,
            at.principal_id,
            "ingest",
            Lane.FILES,
            payload={"message": message},
            dedupe=f"ingest:{message}",
            instance=self._instance,
        )

    async def _locked_address(self, tx: Connection, inbound: Inbound, role: Role) -> AddressRow:
        at = await addresses.lock(tx, inbound.address)
        if at is None:
            await addresses.reserve(tx, inbound.address)
            if await addresses.find(tx, inbound.address) is None:
                await self._open(tx, inbound, role)
            at = await addresses.lock(tx, inbound.address)
            assert at is not None, "it was just added"
        elif at.private and self._people.is_owner(at.principal_id) is not (role is Role.OWNER):
            at = await self._handed_over(tx, at, inbound, role)
        await sessions.lock(tx, at.session_id)
        return at

    async def _handed_over(self, tx: Connection, at: AddressRow, inbound: Inbound, role: Role) -> AddressRow:
        """Who writes here became the owner, or is it no more: what was said here stays with whoever it was."""
        principal = await self._people.principal(tx, inbound, role)
        session = await sessions.start(tx, principal, label_of(role, private=True))
        await addresses.hand_over(tx, at.id, principal, session)
        return replace(at, principal_id=principal, session_id=session)

    async def _open(self, tx: Connection, inbound: Inbound, role: Role) -> None:
        principal = await self._people.principal(tx, inbound, role)
        label = label_of(role, private=inbound.private)
        session = await sessions.start(tx, principal, label)
        await addresses.add(tx, inbound.address, principal, session, private=inbound.private)
        for said in inbound.earlier:
            entry = _entry(said, inbound)
            await messages.say(tx, session, principal, entry, label=label, origin=messages.EARLIER)
        await sessions.set_digest(tx, session, digest.of([(e.role, e.text) for e in inbound.earlier]))

    async def _follow(self, accepted: Accepted, arrival: Arrival) -> None:
        match accepted.decision:
            case RunCommand() if accepted.inbox_id is not None:
                # Also one that was stored before: whether its effect was committed, only its row knows.
                if not await self._dispatch.run(accepted.inbox_id):
                    raise TryAgainLater("a command waits for the database, and what follows it waits with it")
            case StartTurn() | Steer() | Edit() if accepted.message_id is not None and not accepted.duplicate:
                self._wake()
                if arrival.inbound.album:
                    asyncio.get_running_loop().call_later(ALBUM_SECONDS, self._wake)
                if accepted.session_id is not None:
                    self._live.publish(accepted.session_id, MessageStored(accepted.message_id))
            case _:
                pass

    def _remember(self, key: tuple[str, ...], accepted: Accepted) -> None:
        self._seen[key] = accepted
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)


def _as_said(inbound: Inbound) -> Inbound:
    """With what it replies to quoted before it, and word of files that are too many."""
    parts = [inbound.text]
    if quoted := inbound.quoted.strip():
        cut = quoted if len(quoted) <= QUOTED else f"{quoted[:QUOTED]}…"
        parts.insert(0, "\n".join(f"> {line}".rstrip() for line in cut.splitlines()))
    if (more := len(inbound.attachments) - MOST_FILES) > 0:
        parts.append(f"[{more} more files were left out; a message may have {MOST_FILES}.]")
    return replace(inbound, text="\n\n".join(filter(None, parts)))


def _chat(inbound: Inbound) -> tuple[str, str, str]:
    at = inbound.address
    return at.channel, at.account, at.chat


def _entry_id(key: tuple[str, ...]) -> EntryId:
    """The same for the same message, however often it comes."""
    return EntryId(uuid5(_ENTRIES, "\n".join(key)))


def _entry(said: Earlier, inbound: Inbound) -> UserText | AssistantText:
    match said.role:
        case "assistant":
            return AssistantText(said.text)
        case "system":
            return UserText(f"(Instructions from the client)\n{said.text}", inbound.sent_at)
        case "user":
            return UserText(said.text, inbound.sent_at)
        case _:
            assert_never(said.role)


async def _seen_before(tx: Connection, inbound: Inbound, decision: Decision) -> Accepted:
    first = await inbox.seen(tx, inbound)
    assert first is not None, "the key is taken"
    session = (await addresses.get(tx, first.address_id)).session_id
    if first.message_id is not None and (row := await messages.get(tx, first.message_id)):
        session = row.session_id
    return Accepted(decision, first.id, first.address_id, session, first.message_id, duplicate=True)
