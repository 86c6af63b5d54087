"""Asks the owner before a provider embeds much: a new model's vectors of everything, or a large import."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.domain.clock import Clock
from gateway.domain.embedding import Embedder
from gateway.domain.ids import PrincipalId
from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.flow.approvals.own_calls import EMBED
from gateway.llm.prices import Prices
from gateway.store.connection.pool import Connection, Database
from gateway.store.memory import vectors
from gateway.store.trust import reviews
from gateway.store.trust.reviews import Question

PAID = "litellm:"
"""How the names of embedders begin that run at a provider."""
FREE_ROWS = 2_000
CHARACTERS_PER_TOKEN = 4


def estimate(model: str, rows: int, characters: int) -> str:
    """What embedding them takes: rows, tokens and dollars by litellm's table."""
    tokens, price = characters // CHARACTERS_PER_TOKEN, Prices().of(model.removeprefix(PAID)).per_input
    dollars = f"${tokens * price:,.2f}" if price else "the price is unknown"
    return f"{rows:,} pieces of memory, about {tokens:,} tokens ({dollars}),"


@dataclass(frozen=True, slots=True)
class PaidEmbedding:
    """A yes holds for the model it was given for, and for as many rows."""

    database: Database
    owner: Callable[[], PrincipalId]
    clock: Clock

    async def allowed(self, embedder: Embedder, rows: int) -> bool:
        """Whether so many rows may be embedded now; if not, the owner is asked, once for each such number of rows."""
        if rows <= FREE_ROWS or not embedder.name.startswith(PAID):
            return True
        return await self.database.run(lambda tx: self._allowed(tx, embedder.name, rows))

    async def _allowed(self, tx: Connection, model: str, rows: int) -> bool:
        most = await reviews.most_rows(tx, EMBED, model)
        if rows <= most.allowed:
            return True
        if rows > most.asked:
            cost = estimate(model, rows, await vectors.characters_left(tx))
            preview = (
                f"{cost} are to be embedded by {model}; its provider charges for that. "
                f"A yes holds for up to {2 * rows:,}; until then memory is searched by words."
            )
            owner = self.owner()
            arguments: dict[str, Json] = {"model": model, "rows": 2 * rows}
            question = Question(owner, owner, EMBED, arguments, preview, Label.OWNER, lasts=None)
            await reviews.ask(tx, question, self.clock.now())
        return False
