"""Inbound: decide, then store in one transaction. Acknowledged means committed."""

from collections import OrderedDict
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol, assert_never
from uuid import uuid4

from gateway.config.failpoints import Failpoints, Step
from gateway.domain import digest
from gateway.domain.ids import AddressId, EntryId, InboxId, InstanceId, MessageId, SessionId
from gateway.domain.inbound import Earlier, Inbound
from gateway.domain.principals import Label, Role, label_of
from gateway.domain.routing import Decision, Edit, Ignore, RunCommand, StartTurn, Steer, decide
from gateway.domain.transcript import AssistantText, UserText
from gateway.flow.live import Live, MessageStored
from gateway.flow.people import People
from gateway.store import addresses, inbox, messages, sessions, tasks
from gateway.store.addresses import AddressRow
from gateway.store.pool import Connection, Database

REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of one inbound message; only what was stored has ids."""

    decision: Decision
    inbox_id: InboxId | None = None
    address_id: AddressId | None = None
    session_id: SessionId | None = None
    message_id: MessageId | None = None
    duplicate: bool = False


class Wake(Protocol):
    """Tells the worker that there is something to claim."""

    def __call__(self) -> None:
        """Never blocks."""
        ...


class RunsCommands(Protocol):
    """The dispatcher, as inbound sees it."""

    async def run(self, arrival: InboxId) -> None:
        """Commit the effect of a stored command; never raises for what the command does."""
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
    ) -> None:
        self._database = database
        self._people = people
        self._commands = commands
        self._dispatch = dispatch
        self._wake = wake
        self._live = live
        self._instance = instance
        self._failpoints = failpoints
        self._seen: OrderedDict[tuple[str, ...], Accepted] = OrderedDict()

    async def accept(self, batch: Sequence[Inbound]) -> tuple[Accepted, ...]:
        """Store a batch in order; a command takes effect before what follows it is looked at.

        Returning means committed. Raises `TryAgainLater` when the rest of the batch may not be acknowledged; what
        was stored already is recognised when it comes again.
        """
        return tuple([await self._accept(inbound) for inbound in batch])

    async def _accept(self, inbound: Inbound) -> Accepted:
        self._failpoints.reach(Step.INBOUND_RECEIVED)
        key = (inbound.address.channel, inbound.address.account, inbound.address.chat, inbound.platform_id)
        if key in self._seen:
            return replace(self._seen[key], duplicate=True)
        role = self._people.role(inbound)
        decision = decide(inbound, role, self._commands, turn_running=self._live.answering(inbound.address))
        if isinstance(decision, Ignore):
            return Accepted(decision)
        accepted = await self._database.run(lambda tx: self._store(tx, EntryId(uuid4()), inbound, role, decision))
        self._failpoints.reach(Step.INBOUND_COMMITTED)
        self._remember(key, accepted)
        await self._follow(accepted)
        return accepted

    async def _store(
        self, tx: Connection, entry: EntryId, inbound: Inbound, role: Role, decision: Decision
    ) -> Accepted:
        if isinstance(decision, Edit) and await addresses.find(tx, inbound.address) is None:
            return Accepted(Ignore("edit of something unknown"))
        at = await self._locked_address(tx, inbound, role)
        kind = inbox.kind_of(decision)
        arrival = await inbox.enter(tx, inbound, kind, at, entry, handled=kind != "command")
        if arrival is None:
            return await _seen_before(tx, inbound, decision)
        accepted = Accepted(decision, arrival, at.id, at.session_id)
        match decision:
            case StartTurn() | Steer():
                return replace(accepted, message_id=await self._queue(tx, at, arrival, entry, inbound, role))
            case Edit(platform_id):
                edited = await messages.replace_unread(tx, at.id, platform_id, inbound.text)
                return replace(accepted, message_id=edited)
            case RunCommand() | Ignore():
                return accepted
            case _:
                assert_never(decision)

    async def _queue(
        self, tx: Connection, at: AddressRow, arrival: InboxId, entry: EntryId, inbound: Inbound, role: Role
    ) -> MessageId:
        label = label_of(role, private=inbound.private)
        message = await messages.receive(tx, at.session_id, at.principal_id, at.id, inbound, label, entry)
        await inbox.became(tx, arrival, message)
        if label > Label.OWNER:
            await sessions.taint(tx, at.session_id, label)
        await tasks.create_chat(tx, at.principal_id, at.session_id, self._instance)
        return message

    async def _locked_address(self, tx: Connection, inbound: Inbound, role: Role) -> AddressRow:
        at = await addresses.lock(tx, inbound.address)
        if at is None:
            await addresses.reserve(tx, inbound.address)
            if await addresses.find(tx, inbound.address) is None:
                await self._open(tx, inbound, role)
            at = await addresses.lock(tx, inbound.address)
            assert at is not None, "it was just added"
        await sessions.lock(tx, at.session_id)
        return at

    async def _open(self, tx: Connection, inbound: Inbound, role: Role) -> None:
        principal = await self._people.principal(tx, inbound, role)
        label = label_of(role, private=inbound.private)
        session = await sessions.start(tx, principal, label)
        await addresses.add(tx, inbound.address, principal, session, private=inbound.private)
        for said in inbound.earlier:
            entry = _entry(said, inbound)
            await messages.say(tx, session, principal, entry, label=label, origin=messages.EARLIER)
        await sessions.set_digest(tx, session, digest.of([(e.role, e.text) for e in inbound.earlier]))

    async def _follow(self, accepted: Accepted) -> None:
        if accepted.duplicate or accepted.session_id is None:
            return
        match accepted.decision:
            case RunCommand() if accepted.inbox_id is not None:
                await self._dispatch.run(accepted.inbox_id)
            case StartTurn() | Steer() | Edit() if accepted.message_id is not None:
                self._wake()
                self._live.publish(accepted.session_id, MessageStored(accepted.message_id))
            case _:
                pass

    def _remember(self, key: tuple[str, ...], accepted: Accepted) -> None:
        self._seen[key] = accepted
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)


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
