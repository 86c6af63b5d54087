"""The accounts of a person: one more by a code and a yes, one less at a word, and the owner's by the command line."""

from dataclasses import astuple, dataclass, replace
from datetime import datetime

from gateway.domain.channels.channel import Button
from gateway.domain.conversation.inbound import Inbound
from gateway.domain.conversation.transcript import Notice
from gateway.domain.ids import AddressId, PrincipalId, SessionId
from gateway.domain.people.access import identity_of
from gateway.domain.people.credentials import CodeRefusal, parse_code
from gateway.domain.principals import Label, Role
from gateway.domain.text.texts import one_line
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one, fetch_value
from gateway.store.delivery import addresses, outbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.outbox import OutboxPart
from gateway.store.people import pairings, principals
from gateway.store.people.pairings import AccessRequest
from gateway.store.people.principals import PrincipalRow
from gateway.store.transcript import messages, sessions
from gateway.store.trust import audit
from gateway.store.trust.audit import Event
from gateway.store.work import tasks


@dataclass(frozen=True, slots=True)
class LinkRow:
    """The person whose chats a code joins, and the address whose session is the one to join."""

    principal_id: PrincipalId
    address_id: AddressId


@dataclass(frozen=True, slots=True)
class AccountClaim(AccessRequest):
    """An unknown account that gave a person's code; it becomes theirs once a known account of theirs says so."""

    code: str
    principal_id: PrincipalId
    address_id: AddressId
    expires_at: datetime


async def offer(conn: Connection, at: AddressRow, code: str) -> None:
    """A new code for the session of this address; its former one is void."""
    await conn.execute("delete from links where expires_at <= now() or (address_id = $1 and sender is null)", at.id)
    sql = "insert into links (code, principal_id, address_id) values ($1, $2, $3)"
    await conn.execute(sql, code, at.principal_id, at.id)


async def offered(conn: Connection, address: AddressId) -> str | None:
    """The code of this address that nobody has given yet."""
    sql = "select code from links where address_id = $1 and sender is null and expires_at > now()"
    return await fetch_value(conn, str, sql, address)


async def redeem(conn: Connection, who: str, code: str) -> LinkRow | CodeRefusal:
    """Use up a code; returns what it joins."""
    if await pairings.is_locked_out(conn, who):
        return CodeRefusal.LOCKED
    sql = """delete from links where code = $1 and expires_at > now() and sender is null
             returning principal_id, address_id"""
    link = await fetch_first(conn, LinkRow, sql, code)
    if link is None:
        await pairings.note_wrong_code(conn, who)
    return link or CodeRefusal.WRONG


async def claim(conn: Connection, inbound: Inbound, code: str) -> AccountClaim | CodeRefusal:
    """Note that an account gave this code, which is used up by that, and waits for a yes for ten minutes."""
    link = await redeem(conn, identity_of(inbound), code)
    if isinstance(link, CodeRefusal):
        return link
    sql = """insert into links (code, principal_id, address_id, channel, account, chat, thread, sender, name)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9) returning *"""
    whose = (*astuple(inbound.address), inbound.sender.id, one_line(inbound.sender.name, principals.NAME))
    return await fetch_one(conn, AccountClaim, sql, code, link.principal_id, link.address_id, *whose)


async def claims(conn: Connection, principal: PrincipalId) -> list[AccountClaim]:
    """The accounts that wait for this person's yes, by when that ends."""
    sql = """select * from links where principal_id = $1 and sender is not null and expires_at > now()
             order by expires_at"""
    return await fetch_all(conn, AccountClaim, sql, principal)


async def settle(conn: Connection, principal: PrincipalId, code: str) -> AccountClaim | CodeRefusal:
    """Take the claim with this code off the list, which refuses it; `WRONG` if this person has none."""
    sql = """delete from links where code = $1 and principal_id = $2 and sender is not null and expires_at > now()
             returning *"""
    return await fetch_first(conn, AccountClaim, sql, parse_code(code) or "", principal) or CodeRefusal.WRONG


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
    claim = await settle(conn, principal, code)
    if isinstance(claim, CodeRefusal):
        return claim
    other = await addresses.lock_joined(conn, claim.address_id)
    if other.principal_id != principal or not await principals.add_identity(conn, principal, claim.identity):
        return CodeRefusal.ANOTHERS
    await announce(conn, principal, ANNOUNCED.format(claim))
    await say(conn, await addresses.place(conn, claim.address, principal, other.session_id), JOINED)
    await audit.note(conn, Event.ACCOUNT_LINKED, principal=principal, detail=claim.identity)
    return claim


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
