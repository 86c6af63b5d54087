"""One round of tool calls: numbered, run side by side, each with a result."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import count
from time import perf_counter
from types import MappingProxyType
from typing import TypeAlias

from gateway.agent.toolbox import Toolbox, ToolOutcome, Yes
from gateway.domain.conversation.events import ToolFinished
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.tools import Caller
from gateway.domain.conversation.transcript import Entry, ToolIntent, ToolResult

Allowed: TypeAlias = Mapping[int, Yes | None]
"""By ordinal, the calls that a person lets run again after a crash; None: it only asks for permission again."""
NOTHING_ALLOWED: Allowed = MappingProxyType({})
MAY_HAVE_RUN = json.dumps(
    {
        "error": "may_have_run",
        "message": "The gateway restarted during this call: it may or may not have taken effect. "
        "Check before you repeat it, and tell the user.",
    }
)


def number(
    calls: Sequence[ToolCall], first: int, transcript: Iterable[Entry], handed: Set[str] = frozenset()
) -> tuple[ToolIntent, ...]:
    """Calls as intents from ordinal `first` on, each with an id that occurs nowhere else in the transcript.

    `handed` are the names of the tools that the client runs.
    """
    used = {entry.call.id for entry in transcript if isinstance(entry, ToolIntent)}
    intents: list[ToolIntent] = []
    for ordinal, call in enumerate(calls, start=first):
        # Nine letters and digits: the one form that every provider accepts.
        id = call.id or f"call{ordinal:05d}"
        if id in used:
            id = next(free for n in count(ordinal) if (free := f"call{n:05d}") not in used)
        used.add(id)
        intents.append(ToolIntent(ToolCall(id, call.name, call.arguments), ordinal, call.name in handed))
    return tuple(intents)


async def run_calls(
    intents: Sequence[ToolIntent], toolbox: Toolbox, caller: Caller, at_once: int, *, resumed: Allowed | None = None
) -> AsyncGenerator[ToolFinished, None]:
    """Results as they come, at most `at_once` running; closing the generator cancels what still runs.

    With `resumed` the calls may have run before a crash: one that must not run twice gets that as its result, unless
    it is allowed.
    """
    slots = asyncio.Semaphore(at_once)

    async def finish(intent: ToolIntent) -> ToolFinished:
        async with slots:
            started = perf_counter()
            outcome = await _run(intent.call, toolbox, replace(caller, ordinal=intent.ordinal), resumed)
            took = round((perf_counter() - started) * 1000)
        return ToolFinished(intent, ToolResult(intent.call.id, outcome.text), outcome.failed, took, outcome.label)

    running = [asyncio.create_task(finish(intent), name=f"tool {intent.call.name}") for intent in intents]
    try:
        for ended in asyncio.as_completed(running):
            yield await ended
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _run(call: ToolCall, toolbox: Toolbox, caller: Caller, resumed: Allowed | None) -> ToolOutcome:
    if resumed is None:
        return await toolbox.run(call, caller)
    if not toolbox.effect(call.name).repeatable and caller.ordinal not in resumed:
        return ToolOutcome(MAY_HAVE_RUN, failed=True)
    return await toolbox.run(call, caller, yes=resumed.get(caller.ordinal))
