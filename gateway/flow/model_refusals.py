"""Keeps what models refuse across restarts, and tells the owner once about each part that an answer lacks."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import starmap

import structlog

from gateway.domain.errors import TryAgainLater
from gateway.domain.time import Clock
from gateway.llm.local_servers import more_context
from gateway.llm.vendors import ASKED_AGAIN_AFTER, CONTEXT, CUTS, IMAGES, THINKING, Refusal, Refusals
from gateway.logs.errors import logged
from gateway.store.connection.pool import Connection, Database
from gateway.store.work import model_refusals

_WORDS = {
    "tools": "tools: it answers without them",
    IMAGES: "pictures: it gets their text only",
    "response_format": "the answer format that a program asked for",
    "temperature": "models.params.temperature",
    "top_p": "models.params.top_p",
}

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RefusalKeeper:
    """Stores the refusals of this process, after it has read those of earlier ones."""

    database: Database
    refusals: Refusals
    tell_owner: Callable[[str], Awaitable[None]]
    clock: Clock
    _loaded: bool = False
    _waiting: list[Refusal] = field(default_factory=list)

    async def look(self) -> None:
        """Costs nothing without news; what can't be stored now waits."""
        self._waiting += self.refusals.take_news()
        with logged(log, "model_refusals.wait", TryAgainLater):
            if not self._loaded:
                await self._load()
            while self._waiting:
                await self._keep(self._waiting[0])
                del self._waiting[0]

    async def _load(self) -> None:
        rows = await self.database.read(lambda conn: model_refusals.since(conn, self.clock.now() - ASKED_AGAIN_AFTER))
        self.refusals.restore(Refusal(*row) for row in rows)
        self._loaded = True

    async def _keep(self, refusal: Refusal) -> None:
        """Tell first: a crash in between costs a second notice, not the only one."""
        known = await self.database.read(lambda conn: model_refusals.is_kept(conn, refusal.source, refusal.part))
        if not known and (text := _told(refusal)):
            await self.tell_owner(text)
        async with self.database.connection() as conn:
            await model_refusals.keep(conn, refusal.source, refusal.part, refusal.model, refusal.at)


def _told(refusal: Refusal) -> str:
    """The text for the owner; empty for a part that no answer lacks."""
    if refusal.part.startswith(CONTEXT):
        return "{}: {}.".format(*_short_context(refusal))
    level = refusal.part.removeprefix(THINKING)
    words = _WORDS.get(refusal.part) or (f"the thinking level {level!r}" if level != refusal.part else "")
    asked = "It is asked without for a day, and then tried again."
    return f"{refusal.model} doesn't take {words}. {asked}" if words else ""


def _short_context(refusal: Refusal) -> tuple[str, str]:
    window = refusal.part.removeprefix(CONTEXT).partition(" ")[0]
    return f"{refusal.model} doesn't run with {refusal.part}", more_context(refusal.model, int(window))


async def cut_prompts(conn: Connection, now: datetime) -> list[tuple[str, str]]:
    """The models whose servers cut prompts without a word, each with the remedy."""
    refusals = starmap(Refusal, await model_refusals.since(conn, now - ASKED_AGAIN_AFTER))
    return [_short_context(refusal) for refusal in refusals if refusal.part.endswith(CUTS)]
