"""The agent loop: model, tools, model, until there is an answer, and one round of tool calls.

It knows no database, no channel and no clock.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import count
from time import perf_counter
from types import MappingProxyType
from typing import TypeAlias

from gateway.agent.limits import UNSPENT, Limits, Repeats, Spent, Stop
from gateway.agent.toolbox import Toolbox, ToolOutcome, Yes
from gateway.domain.conversation.model import Model, Prompt, Reply, ToolCall
from gateway.domain.conversation.tools import Caller
from gateway.domain.conversation.transcript import (
    Answered,
    AssistantText,
    Entry,
    ModelReplied,
    Steered,
    ToolFinished,
    ToolIntent,
    ToolResult,
    TurnEvent,
)
from gateway.domain.principals import Label

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


def number_calls(
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
            outcome = await _run_call(intent.call, toolbox, replace(caller, ordinal=intent.ordinal), resumed)
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


async def _run_call(call: ToolCall, toolbox: Toolbox, caller: Caller, resumed: Allowed | None) -> ToolOutcome:
    if resumed is None:
        return await toolbox.run(call, caller)
    if not toolbox.effect(call.name).repeatable and caller.ordinal not in resumed:
        return ToolOutcome(MAY_HAVE_RUN, failed=True)
    return await toolbox.run(call, caller, yes=resumed.get(caller.ordinal))


Steer: TypeAlias = Callable[[], Awaitable[Steered]]
"""Takes the messages that arrived since the last model call; there may be none."""

Render: TypeAlias = Callable[[Sequence[Entry]], Prompt]
"""Makes the next prompt of a transcript; it always fits the model."""

NO_ANSWER = "The model gave an empty answer. Try asking again in other words."


@dataclass(slots=True)
class _Turn:
    """A run of the loop as far as it has come."""

    transcript: list[Entry]
    toolbox: Toolbox
    caller: Caller
    limits: Limits
    spent: Spent
    next_ordinal: int
    handed: Set[str]
    repeats: Repeats = field(default_factory=Repeats)

    def stop(self) -> Stop | None:
        return self.limits.stop(self.spent) or self.limits.stop_repeating(self.repeats)

    def accept(self, reply: Reply) -> tuple[ToolIntent, ...]:
        """Account for a reply and number the calls it asks for."""
        self.spent = self.spent.plus(reply.usage)
        intents = number_calls(reply.calls, self.next_ordinal, self.transcript, self.handed)
        self.next_ordinal += len(intents)
        if intents and reply.text.strip():
            self.transcript.append(AssistantText(reply.text, final=False))
        self.transcript.extend(intents)
        return intents

    def conclude(self, finished: Sequence[ToolFinished]) -> None:
        """Take over one round's results, in the order of their calls."""
        self.transcript.extend(event.result for event in sorted(finished, key=lambda event: event.intent.ordinal))
        self.repeats.note(finished)
        for event in finished:
            self.trust(event.label)

    def trust(self, label: Label) -> None:
        """From here on the run has read something of this trust level."""
        self.caller = replace(self.caller, label=max(self.caller.label, label))


async def run_turn(
    entries: Sequence[Entry],
    *,
    model: Model,
    toolbox: Toolbox,
    caller: Caller,
    render: Render,
    steer: Steer,
    limits: Limits,
    pending: Sequence[ToolIntent] = (),
    allowed: Allowed = NOTHING_ALLOWED,
    spent: Spent = UNSPENT,
    handed: Set[str] = frozenset(),
) -> AsyncGenerator[TurnEvent, None]:
    """One turn over a transcript; ends with exactly one `Answered`, or raises `ModelsExhausted`.

    The caller stores each event before it asks for the next one: calls run only after their `ModelReplied` was taken.
    `pending` are the intents at the end of `entries` that a crash left without a result, of which a person lets the
    `allowed` ones run again; the ordinal of `caller` is
    the first free one of the task. Closing the generator closes the model's stream and cancels running tools.
    A call of a tool in `handed` ends the turn, once the others of its round have run: its client runs it.
    """
    turn = _Turn(list(entries), toolbox, caller, limits, spent, caller.ordinal, handed)
    async with aclosing(_tools(turn, pending, resumed=allowed)) as results:
        async for result in results:
            yield result
    if any(intent.handed for intent in pending):
        yield Answered("")
        return
    while not (stop := turn.stop()):
        if (steered := await steer()).messages:
            turn.transcript.extend(steered.messages)
            turn.trust(steered.label)
            yield steered
        async with aclosing(_round(turn, model, render)) as events:
            async for event in events:
                yield event
                if isinstance(event, Answered):
                    return
    yield Answered(stop.text, stop.limit)


async def _round(turn: _Turn, model: Model, render: Render) -> AsyncGenerator[TurnEvent, None]:
    """One model call and the tools it asks for; `Answered` when it asks for none."""
    reply: Reply | None = None
    async with aclosing(model.stream(render(turn.transcript))) as events:
        async for event in events:
            if isinstance(event, Reply):
                reply = event
                break
            yield event
    if reply is None:
        raise RuntimeError("the model's stream ended without a reply")
    intents = turn.accept(reply)
    yield ModelReplied(reply, intents)
    if not intents:
        yield Answered(reply.text.strip() or NO_ANSWER)
    async with aclosing(_tools(turn, intents)) as results:
        async for result in results:
            yield result
    if any(intent.handed for intent in intents):
        yield Answered("")


async def _tools(
    turn: _Turn, intents: Sequence[ToolIntent], *, resumed: Allowed | None = None
) -> AsyncGenerator[ToolFinished, None]:
    finished: list[ToolFinished] = []
    own = [intent for intent in intents if not intent.handed]
    calls = run_calls(own, turn.toolbox, turn.caller, turn.limits.parallel_tools, resumed=resumed)
    async with aclosing(calls) as events:
        async for event in events:
            finished.append(event)
            yield event
    turn.conclude(finished)
