"""Who is talking: principals by their platform identities, under each channel's access rule."""

from collections.abc import Mapping
from dataclasses import replace

from gateway.domain.access import Access, group_identity_of, identity_of, role_of
from gateway.domain.ids import PrincipalId
from gateway.domain.inbound import Inbound
from gateway.domain.principals import Principal, Role
from gateway.store import principals
from gateway.store.pool import Connection, Database
from gateway.store.principals import PrincipalRow

OWN_CHANNELS = frozenset({"web", "terminal", "api"})
"""Reached only with a credential of the owner's: whoever writes there is the owner, and reads the transcript itself."""


class People:
    """The owner and the rules by which others are let in; members and groups get a row when they first write."""

    def __init__(self, owner: PrincipalRow) -> None:
        self._owner = owner
        self._access: Mapping[str, Access] = {}

    @property
    def owner(self) -> Principal:
        """The person this gateway belongs to."""
        return self._owner.principal

    def allow(self, access: Mapping[str, Access]) -> None:
        """Take over the access rules of a new configuration."""
        self._access = access

    def role(self, inbound: Inbound) -> Role:
        """What the sender is to the owner; a channel without a rule admits nobody but the owner."""
        if inbound.address.channel in OWN_CHANNELS:
            return Role.OWNER
        return role_of(inbound, self._owner.identities, self._access.get(inbound.address.channel, Access("owner")))

    async def principal(self, tx: Connection, inbound: Inbound, role: Role) -> PrincipalId:
        """Whose data a new conversation at this address is; a group is a principal of its own."""
        if role is Role.OWNER and inbound.private:
            return self._owner.id
        identity = identity_of(inbound) if inbound.private else group_identity_of(inbound)
        name = inbound.sender.name if inbound.private else f"group {inbound.address.chat}"
        return await principals.ensure_member(tx, name, identity)

    def is_owner(self, principal: PrincipalId) -> bool:
        """Whether this is the owner's data."""
        return principal == self._owner.id

    async def learn(self, database: Database, name: str, identities: Mapping[str, str]) -> None:
        """Take over what a configuration says of the owner: the name, and the id on channels where none is fixed yet.

        Once an id is fixed, only the command line changes it. `identities` maps a channel to the owner's id there.
        """
        async with database.transaction() as tx:
            # What the command line changed meanwhile counts, not what this process remembers.
            stored = await principals.lock_owner(tx)
            fixed = {identity.partition(":")[0] for identity in stored.identities}
            new = tuple(f"{channel}:{id}" for channel, id in identities.items() if channel not in fixed)
            owner = replace(stored, name=name, identities=(*stored.identities, *new))
            if owner != stored:
                await principals.update(tx, owner)
        self._owner = owner


async def meet(database: Database, name: str, identities: Mapping[str, str]) -> People:
    """The owner, made at the first start and known by these identities from then on; see `People.learn`."""
    async with database.transaction() as tx:
        known = await principals.all_known(tx)
        if not any(row.role is Role.OWNER for row in known):
            await principals.add(tx, Role.OWNER, name, [])
            known = await principals.all_known(tx)
    people = People(next(row for row in known if row.role is Role.OWNER))
    await people.learn(database, name, identities)
    return people
