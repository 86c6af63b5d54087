"""The costs of background work: model calls within the budgets, and large embeddings after the owner's approval."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from gateway.domain.conversation.model import ModelsExhausted, Prompt, Reply
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.json import Json
from gateway.domain.memory.memories import Embedder
from gateway.domain.principals import Label, Role
from gateway.domain.work.tasks import Claim
from gateway.flow.approvals import EMBED
from gateway.flow.engine import Engine
from gateway.flow.turn.budgets import BudgetedModel, OutOfBudget, SharedBudgets
from gateway.flow.turn.loop import SizedModel, reply_of
from gateway.llm.prices import Prices
from gateway.store.connection.pool import Connection
from gateway.store.memory import vectors
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewQuestion

MODEL_SECONDS = 120.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BackgroundModel:
    """The model of tasks that ask one question, within the budgets."""

    connected: Callable[[], SizedModel | None]
    """The model as configured now; None if none is connected."""
    budgets: SharedBudgets

    async def ask(self, model: SizedModel, prompt: Prompt, run: Claim, seconds: float = MODEL_SECONDS) -> Reply | None:
        """The reply of the `connected` model; None if it fails, exceeds `seconds`, or the budget is used up."""
        try:
            async with asyncio.timeout(seconds):
                return await reply_of(BudgetedModel(model, self.budgets, run, Role.OWNER), prompt)
        except (ModelsExhausted, OutOfBudget, TimeoutError) as exc:
            log.info("background.no_model", error=type(exc).__name__)
        return None


PAID_PREFIX = "litellm:"
"""The prefix of embedding models that run at a provider."""
FREE_ROWS = 2_000
CHARACTERS_PER_TOKEN = 4


def estimate_embedding(model: str, rows: int, characters: int) -> str:
    """The rows, tokens and dollars of an embedding, in words; the prices come from litellm's table."""
    tokens, price = characters // CHARACTERS_PER_TOKEN, Prices().of(model.removeprefix(PAID_PREFIX)).per_input
    dollars = f"${tokens * price:,.2f}" if price else "the price is unknown"
    return f"{rows:,} pieces of memory, about {tokens:,} tokens ({dollars}),"


async def may_embed(engine: Engine, embedder: Embedder, rows: int) -> bool:
    """Whether this many rows may be embedded now; if not, ask the owner, once for each row count.

    They are asked before a provider embeds more than `FREE_ROWS` rows; an approval holds for its model and rows.
    """
    if rows <= FREE_ROWS or not embedder.name.startswith(PAID_PREFIX):
        return True
    return await engine.database.run(lambda tx: _approved(tx, engine, embedder.name, rows))


async def _approved(tx: Connection, engine: Engine, model: str, rows: int) -> bool:
    most = await vectors.most_rows(tx, EMBED, model)
    if rows <= most.allowed:
        return True
    if rows > most.asked:
        cost = estimate_embedding(model, rows, await vectors.characters_left(tx))
        preview = (
            f"{cost} are to be embedded by {model}; its provider charges for that. "
            f"A yes holds for up to {2 * rows:,}; until then memory is searched by words."
        )
        owner = engine.people.owner.id
        arguments: dict[str, Json] = {"model": model, "rows": 2 * rows}
        what = (EMBED, arguments, preview, Label.OWNER)
        question = ReviewQuestion(owner, owner, *what, lasts=None, act=ToolClass.PERSIST)
        await reviews.ask(tx, question, engine.clock.now())
    return False
