"""Pairing: who asks to be let in and who was, for those who decide outside of a chat."""

from collections.abc import Awaitable, Callable

from gateway.domain.codes import Refusal
from gateway.domain.errors import OwnerMustAct
from gateway.store.people import pairings
from gateway.store.people.pairings import PairingRow
from gateway.store.pool import Database


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

    async def approve(self, code: str) -> PairingRow:
        """Let the stranger with this code in, and greet them; raises `OwnerMustAct` for a code that opens nothing."""
        return await self._settled(await self._database.run(lambda tx: pairings.approve(tx, code)))

    async def deny(self, which: str) -> PairingRow:
        """Turn down the request with this code, or take back what was allowed, by its number or its code.

        Raises `OwnerMustAct` if there is none.
        """
        return await self._settled(await self._database.run(lambda tx: pairings.deny(tx, which)))

    async def _settled(self, outcome: PairingRow | Refusal) -> PairingRow:
        if isinstance(outcome, Refusal):
            raise OwnerMustAct(outcome)
        await self._decided()
        return outcome
