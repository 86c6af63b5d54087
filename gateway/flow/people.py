"""People: who is talking, under each channel's access rule, and the owner's decisions on access requests and linked
accounts."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from gateway.domain.conversation.inbound import OWN_CHANNELS, Address, Inbound
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.domain.people.access import (
    Access,
    KnownIdentities,
    admitted,
    group_identity_of,
    identity_of,
    owner_problems,
    role_of,
)
from gateway.domain.people.credentials import CodeRefusal, new_code
from gateway.domain.principals import Label, Principal, Role
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses
from gateway.store.people import accounts, pairings, principals
from gateway.store.people.accounts import AccountClaim
from gateway.store.people.pairings import PairingRow
from gateway.store.people.principals import PrincipalRow
from gateway.store.transcript import sessions

OWNER_PAGE = Address("web", "owner", "main")
"""The owner's conversation on the page."""
NOT_LET_IN = "its person no longer has access"
"""The reason why queued work of somebody is dropped."""


class People:
    """The owner and the access rules; members and groups get a row when they first write."""

    def __init__(self, owner: PrincipalRow) -> None:
        self._owner = owner
        self._known = KnownIdentities(owner.identities)
        self._access: Mapping[str, Access] = {}
        self._looking = asyncio.Lock()

    @property
    def owner(self) -> Principal:
        """The owner of this gateway."""
        return self._owner.principal

    def allow(self, access: Mapping[str, Access]) -> None:
        """Apply the access rules of a new configuration."""
        self._access = access

    def rule(self, channel: str) -> Access:
        """The access rule of a channel; without one only the owner has access."""
        return self._access.get(channel, Access("owner"))

    def role(self, inbound: Inbound) -> Role:
        """The role of the sender, as far as this process knows."""
        if inbound.address.channel in OWN_CHANNELS:  # credentials are checked earlier
            return Role.OWNER if inbound.member is None else Role.MEMBER
        return role_of(inbound, self._known, self._access)

    async def principal(self, tx: Connection, inbound: Inbound, role: Role) -> PrincipalId:
        """The principal of a new conversation at this address; a group is one of its own."""
        if inbound.member is not None:
            return inbound.member
        if role is Role.OWNER and inbound.private:
            return self._owner.id
        identity = identity_of(inbound) if inbound.private else group_identity_of(inbound)
        name = inbound.sender.name if inbound.private else f"group {inbound.address.chat}"
        return await principals.ensure_member(tx, name, identity)

    def holder(self, inbound: Inbound, role: Role) -> PrincipalId | None:
        """The principal of a private chat with this sender; None: a member, found by their identity."""
        return inbound.member or (self._owner.id if role is Role.OWNER else None)

    async def holds(self, tx: Connection, principal: PrincipalId, inbound: Inbound, role: Role) -> bool:
        """Whether a private chat of this principal still belongs to its sender."""
        if inbound.member is not None:
            return principal == inbound.member
        if role is Role.OWNER or self.is_owner(principal):
            return role is Role.OWNER and self.is_owner(principal)
        return identity_of(inbound) in await principals.identities(tx, principal)

    async def lets_in(self, conn: Connection, principal: PrincipalId) -> bool:
        """Whether this principal still has access, as far as this process knows."""
        if self.is_owner(principal):
            return True
        return admitted(await principals.identities(conn, principal), self._known, self._access)

    def may_join(self, inbound: Inbound, principal: PrincipalId) -> bool:
        """Whether an account on this channel can be linked to this person."""
        return self.is_owner(principal) or self.rule(inbound.address.channel).mode != "owner"

    def unsettled(self, named: Mapping[str, str], enabled: Collection[str]) -> list[str]:
        """Problems with the owner's own ids that the owner has to solve, a line each."""
        return list(owner_problems(named, enabled, self._owner.identities, self._owner.unconfirmed))

    def is_owner(self, principal: PrincipalId) -> bool:
        """Whether this is the owner."""
        return principal == self._owner.id

    def own_label(self, principal: PrincipalId) -> Label:
        """The label of this person's own words, in a private chat or in a file."""
        return Label.OWNER if self.is_owner(principal) else Label.KNOWN

    async def learn(self, database: Database, name: str, identities: Mapping[str, str]) -> None:
        """Apply the owner's name, and their id on channels where none is fixed yet.

        Once an id is fixed, only the command line changes it. `identities` maps a channel to the owner's id there.
        """
        async with database.transaction() as tx:
            # The command line may have changed the row since this process read it.
            stored = await principals.lock_owner(tx)
            fixed = {identity.partition(":")[0] for identity in stored.identities}
            new = tuple(f"{channel}:{id}" for channel, id in identities.items() if channel not in fixed)
            named = {f"{channel}:{id}" for channel, id in identities.items()}
            unconfirmed = tuple(known for known in stored.unconfirmed if known not in named)
            owner = replace(stored, name=name, identities=(*stored.identities, *new), unconfirmed=unconfirmed)
            if owner != stored:
                await principals.update(tx, owner)
        await self.refresh(database)

    async def refresh(self, database: Database) -> None:
        """Reload who has access and which accounts are linked, whichever process changed it."""
        async with self._looking, database.connection() as conn:  # reads must end in the order they began
            self._owner = await principals.owner(conn) or self._owner
            linked = {each: row.identities for row in await principals.linked(conn) for each in row.identities}
            self._known = KnownIdentities(frozenset(self._owner.identities), await pairings.paired(conn), linked)


async def meet(database: Database, name: str, identities: Mapping[str, str]) -> People:
    """Load the owner, who is created at the first start with these identities; see `People.learn`."""
    async with database.transaction() as tx:
        if await principals.owner(tx) is None:
            await principals.add(tx, Role.OWNER, name, [])
        people = People(await principals.lock_owner(tx))
    await people.learn(database, name, identities)
    return people


Outcome = TypeVar("Outcome", PairingRow, AccountClaim)


async def _announced_by_database() -> None:
    """Running gateways learn it from the database."""


class Pairing:
    """The owner's decisions on access requests and accounts, outside of a chat; `decided` runs after each commit."""

    def __init__(self, database: Database, decided: Callable[[], Awaitable[None]] = _announced_by_database) -> None:
        self._database = database
        self._decided = decided

    async def open_requests(self) -> list[PairingRow]:
        """Open access requests, the oldest first."""
        return await self._database.read(pairings.open_requests)

    async def admitted(self) -> list[PairingRow]:
        """People allowed by a code, by channel and name."""
        return await self._database.read(pairings.admitted)

    async def claims(self) -> list[AccountClaim]:
        """The accounts that claim to be the owner's."""
        async with self._database.connection() as conn:
            owner = await principals.owner(conn)
            return await accounts.claims(conn, owner.id) if owner else []

    async def offer(self) -> str:
        """Make a code that links an account of the owner's, valid for ten minutes; the previous one expires."""
        code = new_code()

        async def work(tx: Connection) -> None:
            owner = await principals.lock_owner(tx)
            await addresses.reserve(tx, OWNER_PAGE)
            at = await addresses.find(tx, OWNER_PAGE)
            if at is None:
                at = await addresses.place(tx, OWNER_PAGE, owner.id, await sessions.start(tx, owner.id, Label.OWNER))
            await accounts.offer(tx, at, code)

        await self._database.run(work)
        return code

    async def offered(self) -> str | None:
        """The link code that is valid now."""
        async with self._database.connection() as conn:
            at = await addresses.find(conn, OWNER_PAGE)
            return await accounts.offered(conn, at.id) if at else None

    async def accounts(self) -> list[PrincipalRow]:
        """The owner and the members with several accounts."""
        async with self._database.connection() as conn:
            owner = await principals.owner(conn)
            return [*([owner] if owner else []), *await principals.linked(conn)]

    async def answer(self, code: str, *, join: bool) -> None:
        """Link or refuse the account that entered this code; raises `OwnerMustAct` if there is none."""

        async def work(tx: Connection) -> AccountClaim | CodeRefusal:
            owner = await principals.owner(tx)
            settle = accounts.join if join else accounts.settle
            return await settle(tx, owner.id, code) if owner else CodeRefusal.WRONG

        await self._settled(await self._database.run(work))

    async def part(self, identity: str) -> None:
        """Unlink an account; raises `OwnerMustAct` if it is not linked."""
        if not await self._database.run(lambda tx: accounts.part(tx, identity)):
            raise OwnerMustAct(f"{identity} is not linked; `supaclaw owner show` lists your accounts")
        await self._decided()

    async def approve(self, code: str) -> PairingRow:
        """Allow the access request with this code, and greet the person; raises `OwnerMustAct` for a wrong code."""
        return await self._settled(await self._database.run(lambda tx: pairings.approve(tx, code)))

    async def deny(self, which: str) -> PairingRow:
        """Deny the request with this number or code, or revoke the access it gave.

        Raises `OwnerMustAct` if there is none.
        """
        return await self._settled(await self._database.run(lambda tx: pairings.deny(tx, which)))

    async def _settled(self, outcome: Outcome | CodeRefusal) -> Outcome:
        if isinstance(outcome, CodeRefusal):
            raise OwnerMustAct(outcome)
        await self._decided()
        return outcome
