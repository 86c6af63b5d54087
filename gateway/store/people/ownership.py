"""Changes of the owner's accounts by the command line."""

from dataclasses import replace

from gateway.domain.principals import Label, Role
from gateway.store import sessions
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses
from gateway.store.people import principals
from gateway.store.people.principals import PrincipalRow
from gateway.store.trust import audit
from gateway.store.trust.audit import Event


async def set_owner(conn: Connection, channel: str, id: str) -> tuple[PrincipalRow, list[str]]:
    """Make this id the owner's only one on the channel; returns the owner and the ids that no longer are.

    Private chats there go to the first of those as a member: what the gateway tells the owner must not reach them.
    """
    identity = f"{channel}:{id}"
    if await principals.owner(conn) is None:
        await principals.add(conn, Role.OWNER, "Owner", [])
    owner = await principals.lock_owner(conn)
    here = [known for known in owner.identities if known.startswith(f"{channel}:")]
    others = tuple(known for known in owner.identities if known not in here)
    unconfirmed = tuple(known for known in owner.unconfirmed if known not in here)
    changed = replace(owner, identities=(*others, identity), unconfirmed=unconfirmed)
    await principals.update(conn, changed)
    if former := [known for known in here if known != identity]:
        private = await addresses.lock_private(conn, owner.id, channel)
        member = await principals.ensure_member(conn, former[0], former[0])
        for at in private:
            await addresses.hand_over(conn, at.id, member, await sessions.start(conn, member, Label.KNOWN))
    await audit.note(conn, Event.OWNER_SET, principal=owner.id, detail=identity)
    return changed, [known.removeprefix(f"{channel}:") for known in former]
