"""Tools that note what they did, and let a test act in the middle of a call."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pydantic import BaseModel

from gateway.domain.conversation.tools import AnyTool, Caller, Effect, Labelled, Tool, ToolClass
from gateway.tools import Services


class Word(BaseModel):
    text: str = ""


async def _nothing() -> None: ...


@dataclass
class Workshop:
    """`look` and `put` may run twice, `edit` and `send` may not; `during` runs in every call."""

    ran: list[str] = field(default_factory=list)
    during: Callable[[], Awaitable[None]] = _nothing

    def family(self, _services: Services) -> tuple[AnyTool, ...]:
        return (
            Tool("look", "Looks.", Word, self._work, kind=ToolClass.READ),
            Tool("put", "Puts.", Word, self._work, Effect.IDEMPOTENT, kind=ToolClass.READ),
            Tool("edit", "Edits.", Word, self._work, Effect.LOCAL, kind=ToolClass.WRITE),
            Tool("send", "Sends.", Word, self._work, Effect.ONCE, kind=ToolClass.READ),
        )

    def hang(self) -> asyncio.Event:
        """From now on no call ends; the event is set when one has begun."""
        reached = asyncio.Event()

        async def hang() -> None:
            reached.set()
            await asyncio.Event().wait()

        self.during = hang
        return reached

    async def _work(self, word: Word, caller: Caller) -> Labelled:
        self.ran.append(word.text)
        await self.during()
        return Labelled.own({"did": word.text})
