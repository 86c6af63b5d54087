"""After a restore: whoever may have missed an answer is told so, once."""

from gateway.domain.principals import Label
from gateway.domain.transcript import Notice
from gateway.store import addresses, messages, outbox, sessions
from gateway.store.loading import addresses_in_doubt
from gateway.store.pool import Connection, Database

RESTORED = "I was restored from a backup and cannot tell whether my last answer arrived; /last shows it again."


async def tell_about_doubts(db: Database) -> int:
    """One notice for each chat whose answers were on their way; returns how many chats. Nothing the second time."""
    return await db.run(_tell)


async def _tell(tx: Connection) -> int:
    doubted = await addresses_in_doubt(tx)
    for address in doubted:
        at = await addresses.lock_by_id(tx, address)
        await sessions.lock(tx, at.session_id)
        said = await messages.say(
            tx, at.session_id, at.principal_id, Notice(RESTORED), label=Label.OWNER, address=at.id
        )
        await outbox.put(tx, at.principal_id, at.id, said.id, [RESTORED], notice=True)
    return len(doubted)
