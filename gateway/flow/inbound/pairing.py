"""Pairing: who asks to be let in and who was, and whose accounts are joined, for those who decide outside of a chat."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.domain.errors import OwnerMustAct
from gateway.domain.principals import Label
from gateway.domain.text.codes import Refusal, new_code
from gateway.flow.people import PAGE
from gateway.store import sessions
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses
from gateway.store.people import accounts, links, pairings, principals
from gateway.store.people.links import Claim
from gateway.store.people.pairings import PairingRow
from gateway.store.people.principals import PrincipalRow

Outcome = TypeVar("Outcome", PairingRow, Claim)


async def _nobody_waits() -> None:
    """Running gateways hear of it from the database."""


class Pairing:
    """The owner's word on strangers. `decided` runs after each decision is committed."""

    def __init__(self, database: Database, decided: Callable[[], Awaitable[None]] = _nobody_waits) -> None:
        self._database = database
        self._decided = decided

    async def open_requests(self) -> list[PairingRow]:
        """Who waits for an answer, the oldest first."""
        async with self._database.connection() as conn:
            return await pairings.open_requests(conn)

    async def admitted(self) -> list[PairingRow]:
        """Who was let in by a code, by channel and name."""
        async with self._database.connection() as conn:
            return await pairings.admitted(conn)

    async def claims(self) -> list[Claim]:
        """The accounts that ask to be the owner's."""
        async with self._database.connection() as conn:
            owner = await principals.owner(conn)
            return await links.claims(conn, owner.id) if owner else []

    async def offer(self) -> str:
        """A new code by which an account of the owner's proves itself, for ten minutes; the former one is void."""
        code = new_code()

        async def work(tx: Connection) -> None:
            owner = await principals.lock_owner(tx)
            await addresses.reserve(tx, PAGE)
            at = await addresses.find(tx, PAGE)
            if at is None:
                session = await sessions.start(tx, owner.id, Label.OWNER)
                at = await addresses.place(tx, PAGE, owner.id, session)
            await links.offer(tx, at, code)

        await self._database.run(work)
        return code

    async def offered(self) -> str | None:
        """The code that waits to be given."""
        async with self._database.connection() as conn:
            at = await addresses.find(conn, PAGE)
            return await links.offered(conn, at.id) if at else None

    async def accounts(self) -> list[PrincipalRow]:
        """The owner and the members with several accounts."""
        async with self._database.connection() as conn:
            owner = await principals.owner(conn)
            return [*([owner] if owner else []), *await principals.linked(conn)]

    async def answer(self, code: str, *, join: bool) -> None:
        """The owner's word on the account that gave a code of theirs; raises `OwnerMustAct` if there is none."""

        async def work(tx: Connection) -> Claim | Refusal:
            owner = await principals.owner(tx)
            settle = accounts.join if join else accounts.refuse
            return await settle(tx, owner.id, code) if owner else Refusal.WRONG

        await self._settled(await self._database.run(work))

    async def part(self, identity: str) -> None:
        """Take an account from its person; raises `OwnerMustAct` if there is none to take."""
        if not await self._database.run(lambda tx: accounts.part(tx, identity)):
            raise OwnerMustAct(f"{identity} is not linked; `supaclaw owner show` lists your accounts")
        await self._decided()

    async def approve(self, code: str) -> PairingRow:
        """Let the stranger with this code in, and greet them; raises `OwnerMustAct` for a code that opens nothing."""
        return await self._settled(await self._database.run(lambda tx: pairings.approve(tx, code)))

    async def deny(self, which: str) -> PairingRow:
        """Turn down the request with this code, or take back what was allowed, by its number or its code.

        Raises `OwnerMustAct` if there is none.
        """
        return await self._settled(await self._database.run(lambda tx: pairings.deny(tx, which)))

    async def _settled(self, outcome: Outcome | Refusal) -> Outcome:
        if isinstance(outcome, Refusal):
            raise OwnerMustAct(outcome)
        await self._decided()
        return outcome
