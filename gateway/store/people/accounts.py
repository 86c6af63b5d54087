"""The accounts of a person: one more by the person's yes, one less at a word, and the owner's by the command line."""

from dataclasses import replace

from gateway.domain.channels.channel import Button
from gateway.domain.conversation.transcript import Notice
from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.people.credentials import CodeRefusal, parse_code
from gateway.domain.principals import Label, Role
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses, outbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.outbox import OutboxPart
from gateway.store.people import links, principals
from gateway.store.people.links import AccountClaim
from gateway.store.people.principals import PrincipalRow
from gateway.store.transcript import messages, sessions
from gateway.store.trust import audit
from gateway.store.trust.audit import Event
from gateway.store.work import tasks

QUESTION = (
    "{0} entered your /link code to become one of your accounts. Anyone who writes there would be treated as you "
    "and could read this conversation. If it isn't you, say no.\n"
    "/link join {0.code} links it, /link deny {0.code} refuses it."
)
JOINED = (
    "This account is now one of yours, and this chat continues the other one's conversation. "
    "/link off separates them again."
)
ANNOUNCED = (
    "{} is now one of your accounts. If that wasn't you, disconnect it on the People page: `supaclaw web` opens it."
)
PARTED = "`{}` is no longer one of your accounts."


async def ask(conn: Connection, claim: AccountClaim) -> messages.MessageRow:
    """Ask where the code was made; the account itself has no say."""
    at = await addresses.lock_joined(conn, claim.address_id)
    buttons = Button("Link", f"/link join {claim.code}"), Button("No", f"/link deny {claim.code}")
    return await say(conn, at, QUESTION.format(claim), buttons)


async def join(conn: Connection, principal: PrincipalId, code: str) -> AccountClaim | CodeRefusal:
    """Link the account that gave the code to the person, and notify all of their accounts."""
    claim = await links.settle(conn, principal, parse_code(code) or "")
    if claim is None:
        return CodeRefusal.WRONG
    other = await addresses.lock_joined(conn, claim.address_id)
    if other.principal_id != principal or not await principals.add_identity(conn, principal, claim.identity):
        return CodeRefusal.ANOTHERS
    await announce(conn, principal, ANNOUNCED.format(claim))
    await say(conn, await addresses.place(conn, claim.address, principal, other.session_id), JOINED)
    await audit.note(conn, Event.ACCOUNT_LINKED, principal=principal, detail=claim.identity)
    return claim


async def refuse(conn: Connection, principal: PrincipalId, code: str) -> AccountClaim | CodeRefusal:
    """Refuse the account that gave the code."""
    return await links.settle(conn, principal, parse_code(code) or "") or CodeRefusal.WRONG


async def part(conn: Connection, identity: str) -> bool:
    """Take an account from its person, with the private chats it may have; False for nobody's, and a member's only one.

    Where a platform's chats do not tell whose they are, chats of the person's other accounts there start anew, too.
    """
    person = await principals.find(conn, identity)
    left = [each for each in await principals.identities(conn, person) if each != identity] if person else []
    if person is None or not (left or (await principals.get(conn, person)).role is Role.OWNER):
        return False
    await principals.remove_identity(conn, person, identity)
    nobody = await principals.add(conn, Role.MEMBER, f"parted {identity}"[: principals.NAME], [])
    for at in await addresses.lock_private(conn, person, identity.partition(":")[0]):
        if f"{at.channel}:{at.chat}" not in left:
            if await messages.waits(conn, at.session_id, at.id):
                await stop(conn, at.session_id)
            await outbox.withdraw(conn, at.id, "its account was parted")
            await addresses.hand_over(conn, at.id, nobody, await sessions.start(conn, nobody, Label.KNOWN))
    await announce(conn, person, PARTED.format(identity))
    await audit.note(conn, Event.ACCOUNT_UNLINKED, principal=person, detail=identity)
    return True


async def stop(conn: Connection, session: SessionId) -> int:
    """Cancel the running turn and give up what is unanswered, as /stop does; how many messages that were."""
    await sessions.lock(conn, session)
    if task := await tasks.live_chat(conn, session):
        await tasks.cancel(conn, task)
    return await messages.close(conn, session)


async def announce(conn: Connection, principal: PrincipalId, text: str) -> None:
    """Tell a person on each messenger account and on the page."""
    told = set[SessionId]()
    for at in await addresses.private_chats(conn, principal):
        if at.channel != "web" or at.session_id not in told:
            await say(conn, at, text)
            told.add(at.session_id)


async def say(conn: Connection, at: AddressRow, text: str, buttons: tuple[Button, ...] = ()) -> messages.MessageRow:
    """Store a notice in a chat and queue it; it is short enough for every messenger."""
    await sessions.lock(conn, at.session_id)
    said = await messages.say(conn, at.session_id, at.principal_id, Notice(text), label=Label.OWNER, address=at.id)
    if at.channel not in {"web", "terminal"}:
        await outbox.put(conn, at.principal_id, at.id, said.id, [OutboxPart(text, buttons=buttons)])
    return said


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
