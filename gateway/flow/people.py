"""Who is talking: principals by their platform identities, under each channel's access rule."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

from gateway.domain.conversation.inbound import OWN_CHANNELS, Address, Inbound
from gateway.domain.ids import PrincipalId
from gateway.domain.people.access import Access, Known, admitted, group_identity_of, identity_of, role_of
from gateway.domain.people.ownership import unsettled
from gateway.domain.principals import Label, Principal, Role
from gateway.store.connection.pool import Connection, Database
from gateway.store.people import pairings, principals
from gateway.store.people.principals import PrincipalRow

PAGE = Address("web", "owner", "main")
"""The owner's conversation on the page."""
NOT_LET_IN = "its person no longer has access"
"""Why what waits for somebody is not done."""


class People:
    """The owner and the rules by which others are let in; members and groups get a row when they first write."""

    def __init__(self, owner: PrincipalRow) -> None:
        self._owner = owner
        self._known = Known(owner.identities)
        self._access: Mapping[str, Access] = {}
        self._looking = asyncio.Lock()

    @property
    def owner(self) -> Principal:
        """The person this gateway belongs to."""
        return self._owner.principal

    def allow(self, access: Mapping[str, Access]) -> None:
        """Take over the access rules of a new configuration."""
        self._access = access

    def rule(self, channel: str) -> Access:
        """How a channel lets people in; one without a rule admits nobody but the owner."""
        return self._access.get(channel, Access("owner"))

    def role(self, inbound: Inbound) -> Role:
        """What the sender is to the owner, as far as this process knows."""
        if inbound.address.channel in OWN_CHANNELS:  # who has a credential was let in when it was looked at
            return Role.OWNER if inbound.member is None else Role.MEMBER
        return role_of(inbound, self._known, self._access)

    async def principal(self, tx: Connection, inbound: Inbound, role: Role) -> PrincipalId:
        """Whose data a new conversation at this address is; a group is a principal of its own."""
        if inbound.member is not None:
            return inbound.member
        if role is Role.OWNER and inbound.private:
            return self._owner.id
        identity = identity_of(inbound) if inbound.private else group_identity_of(inbound)
        name = inbound.sender.name if inbound.private else f"group {inbound.address.chat}"
        return await principals.ensure_member(tx, name, identity)

    async def holds(self, tx: Connection, principal: PrincipalId, inbound: Inbound, role: Role) -> bool:
        """Whether a private chat of this principal's is still its sender's."""
        if inbound.member is not None:
            return principal == inbound.member
        if role is Role.OWNER or self.is_owner(principal):
            return role is Role.OWNER and self.is_owner(principal)
        return identity_of(inbound) in await principals.identities(tx, principal)

    async def lets_in(self, conn: Connection, principal: PrincipalId) -> bool:
        """Whether work may still be done for this principal, as far as this process knows."""
        if self.is_owner(principal):
            return True
        return admitted(await principals.identities(conn, principal), self._known, self._access)

    def may_join(self, inbound: Inbound, principal: PrincipalId) -> bool:
        """Whether an account on this channel can become one more of this person's."""
        return self.is_owner(principal) or self.rule(inbound.address.channel).mode != "owner"

    def unsettled(self, named: Mapping[str, str], enabled: Collection[str]) -> list[str]:
        """What the owner has to settle about their own ids, a line each."""
        return list(unsettled(named, enabled, self._owner.identities, self._owner.unconfirmed))

    def is_owner(self, principal: PrincipalId) -> bool:
        """Whether this is the owner's data."""
        return principal == self._owner.id

    def own_label(self, principal: PrincipalId) -> Label:
        """The trust level of this person's own words, said in private or written with an editor."""
        return Label.OWNER if self.is_owner(principal) else Label.KNOWN

    async def learn(self, database: Database, name: str, identities: Mapping[str, str]) -> None:
        """Take over what a configuration says of the owner: the name, and the id on channels where none is fixed yet.

        Once an id is fixed, only the command line changes it. `identities` maps a channel to the owner's id there.
        """
        async with database.transaction() as tx:
            # What the command line changed meanwhile counts, not what this process remembers.
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
        """Learn who was let in, turned away or joined meanwhile, by whichever process."""
        async with self._looking, database.connection() as conn:  # who began to look earlier may not end later
            self._owner = await principals.owner(conn) or self._owner
            linked = {each: row.identities for row in await principals.linked(conn) for each in row.identities}
            self._known = Known(frozenset(self._owner.identities), await pairings.paired(conn), linked)


async def meet(database: Database, name: str, identities: Mapping[str, str]) -> People:
    """The owner, made at the first start and known by these identities from then on; see `People.learn`."""
    async with database.transaction() as tx:
        if await principals.owner(tx) is None:
            await principals.add(tx, Role.OWNER, name, [])
        people = People(await principals.lock_owner(tx))
    await people.learn(database, name, identities)
    return people
