"""A model that is asked for work that nobody waits for."""

import asyncio

import structlog

from gateway.domain.ids import PrincipalId
from gateway.domain.model import Model, ModelsExhausted, Prompt, Reply
from gateway.flow.turn.budgets import Budgets
from gateway.flow.turn.wiring import reply_of
from gateway.store.people import principals
from gateway.store.pool import Database

SECONDS = 120.0

log = structlog.get_logger(__name__)


async def ask(
    model: Model,
    prompt: Prompt,
    database: Database,
    budgets: Budgets,
    principal: PrincipalId,
    seconds: float = SECONDS,
) -> Reply | None:
    """Ask once; None if no model answers, or the budget is used up."""
    async with database.connection() as conn:
        role = (await principals.get(conn, principal)).role
    if (await budgets.allow(role)).refusal is not None:
        return None
    try:
        async with asyncio.timeout(seconds):
            return await reply_of(model, prompt)
    except (ModelsExhausted, TimeoutError) as exc:
        log.info("background.no_model", error=type(exc).__name__)
    return None
