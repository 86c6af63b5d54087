"""A model that is asked for work that nobody waits for."""

import asyncio

import structlog

from gateway.domain.conversation.model import ModelsExhausted, Prompt, Reply
from gateway.domain.principals import Role
from gateway.domain.work.tasks import Claim
from gateway.flow.turn.budgets import Budgets, OutOfBudget
from gateway.flow.turn.reserving import Reserving
from gateway.flow.turn.wiring import SizedModel, reply_of

SECONDS = 120.0

log = structlog.get_logger(__name__)


async def ask(
    model: SizedModel, prompt: Prompt, budgets: Budgets, run: Claim, seconds: float = SECONDS
) -> Reply | None:
    """Ask once; None if no model answers, or the budget is used up."""
    try:
        async with asyncio.timeout(seconds):
            return await reply_of(Reserving(model, budgets, run, Role.OWNER), prompt)
    except (ModelsExhausted, OutOfBudget, TimeoutError) as exc:
        log.info("background.no_model", error=type(exc).__name__)
    return None
