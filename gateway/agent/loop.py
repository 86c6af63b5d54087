"""The agent loop: call the model, run the tools it asks for, and repeat until it answers.

The loop knows no database, no channel and no clock.
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
from gateway.agent.toolbox import ApprovedCall, Toolbox, ToolOutcome
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

Steer: TypeAlias = Callable[[], Awaitable[Steered]]
"""Takes the messages that arrived since the last model call; there may be none."""

Render: TypeAlias = Callable[[Sequence[Entry], Label], Prompt]
"""Makes the next prompt from a transcript and the label of the run by now; it always fits the model."""

RepeatApprovals: TypeAlias = Mapping[int, ApprovedCall | None]
"""The calls that may run again after a crash, by ordinal. None: without an approval, so the call asks for one."""

NO_REPEATS: RepeatApprovals = MappingProxyType({})
NOTHING_NEW = Steered((), Label.OWNER)
NO_ANSWER = "The model gave an empty answer. Try asking again in other words."
MAY_HAVE_RUN = json.dumps(
    {
        "error": "may_have_run",
        "message": "The gateway restarted during this call: it may or may not have taken effect. "
        "Check before you repeat it, and tell the user.",
    }
)


async def run_turn(
    entries: Sequence[Entry],
    *,
    model: Model,
    toolbox: Toolbox,
    caller: Caller,
    render: Render,
    steer: Steer,
    follow: Steer | None = None,
    limits: Limits,
    pending: Sequence[ToolIntent] = (),
    allowed: RepeatApprovals = NO_REPEATS,
    spent: Spent = UNSPENT,
    client_tools: Set[str] = frozenset(),
) -> AsyncGenerator[TurnEvent, None]:
    """Run one turn over a transcript; ends with exactly one `Answered`, or raises `ModelsExhausted`.

    The consumer stores each event before it asks for the next one: calls run only after their `ModelReplied` was
    taken. The ordinal of `caller` is the first free one of the task. `pending` are the intents at the end of `entries`
    that a crash left without a result; the `allowed` ones of them may run again. A call of one of the `client_tools`
    ends the turn after the other calls of its round have run: the client runs it. `follow` takes messages that belong
    to what was just answered, which the turn then answers together. Closing the generator closes the model's stream and
    cancels running tools.
    """
    turn = _Turn(list(entries), toolbox, caller, limits, spent, caller.ordinal, client_tools)
    async with aclosing(_run_round(turn, pending, resumed=allowed)) as results:
        async for result in results:
            yield result
            if isinstance(result, Answered):
                return
    while not (stop := turn.stop()):
        if (steered := await steer()).messages:
            turn.join(steered)
            yield steered
        reply: Reply | None = None
        async with aclosing(_call_model(turn, model, render)) as events:
            async for event in events:
                if isinstance(event, ModelReplied):
                    reply = None if event.intents else event.reply
                if not isinstance(event, Answered):
                    yield event
                elif reply is None or follow is None or turn.stop() or not (more := await follow()).messages:
                    yield event
                    return
                else:
                    turn.join(more)
                    yield replace(more, instead=reply)
    yield Answered(stop.text, stop.limit)


@dataclass(slots=True)
class _Turn:
    """The state of one run of the loop."""

    transcript: list[Entry]
    toolbox: Toolbox
    caller: Caller
    limits: Limits
    spent: Spent
    next_ordinal: int
    client_tools: Set[str]
    repeats: Repeats = field(default_factory=Repeats)

    def stop(self) -> Stop | None:
        return self.limits.stop(self.spent) or self.limits.stop_repeating(self.repeats)

    def add_reply(self, reply: Reply) -> tuple[ToolIntent, ...]:
        """Account for a reply and number the calls it asks for."""
        self.spent = self.spent.plus(reply.usage)
        intents = _number_calls(reply, self.next_ordinal, self.transcript, self.client_tools)
        self.next_ordinal += len(intents)
        if intents and reply.text.strip():
            self.transcript.append(AssistantText(reply.text, final=False))
        self.transcript.extend(intents)
        return intents

    def add_results(self, finished: Sequence[ToolFinished]) -> None:
        """Append the results of one round, in the order of their calls."""
        self.transcript.extend(event.result for event in sorted(finished, key=lambda event: event.intent.ordinal))
        self.repeats.note(finished)
        for event in finished:
            self.taint(event.label)

    def join(self, steered: Steered) -> None:
        """Append messages that arrived meanwhile."""
        self.transcript.extend(steered.messages)
        self.taint(steered.label)

    def taint(self, label: Label) -> None:
        """Lower the trust of the run to this label; it never rises again."""
        self.caller = replace(self.caller, label=max(self.caller.label, label))


async def _call_model(turn: _Turn, model: Model, render: Render) -> AsyncGenerator[TurnEvent, None]:
    """One model call and the tools it asks for; ends with `Answered` if it asks for none."""
    reply: Reply | None = None
    async with aclosing(model.stream(render(turn.transcript, turn.caller.label))) as events:
        async for event in events:
            if isinstance(event, Reply):
                reply = event
                break
            yield event
    if reply is None:
        raise RuntimeError("the model's stream ended without a reply")
    intents = turn.add_reply(reply)
    yield ModelReplied(reply, intents)
    if not intents:
        yield Answered(reply.text.strip() or NO_ANSWER)
    async with aclosing(_run_round(turn, intents)) as results:
        async for result in results:
            yield result


async def _run_round(
    turn: _Turn, intents: Sequence[ToolIntent], *, resumed: RepeatApprovals | None = None
) -> AsyncGenerator[ToolFinished | Answered, None]:
    """Run one round of calls; ends with an empty `Answered` if the client has to run some of them."""
    finished: list[ToolFinished] = []
    own = [intent for intent in intents if not intent.handed]
    calls = _run_calls(own, turn.toolbox, turn.caller, turn.limits.parallel_tools, resumed=resumed)
    async with aclosing(calls) as events:
        async for event in events:
            finished.append(event)
            yield event
    turn.add_results(finished)
    if len(own) < len(intents):
        yield Answered("")


def _number_calls(
    reply: Reply, first: int, transcript: Iterable[Entry], client_tools: Set[str]
) -> tuple[ToolIntent, ...]:
    """The calls as intents from ordinal `first` on, each with an id that is unique in the transcript.

    The first has the fields of the reply.
    """
    used = {entry.call.id for entry in transcript if isinstance(entry, ToolIntent)}
    intents: list[ToolIntent] = []
    for ordinal, call in enumerate(reply.calls, start=first):
        # Nine letters and digits: the one form that every provider accepts.
        id = call.id or f"call{ordinal:05d}"
        if id in used:
            id = next(free for n in count(ordinal) if (free := f"call{n:05d}") not in used)
        used.add(id)
        fields = reply.fields if ordinal == first else None
        intents.append(ToolIntent(replace(call, id=id), ordinal, call.name in client_tools, fields))
    return tuple(intents)


async def _run_calls(
    intents: Sequence[ToolIntent], toolbox: Toolbox, caller: Caller, limit: int, *, resumed: RepeatApprovals | None
) -> AsyncGenerator[ToolFinished, None]:
    """Run calls, at most `limit` at the same time, and yield each result as it comes.

    With `resumed`, the calls may have run before a crash: a call that must not run twice gets `MAY_HAVE_RUN` as its
    result, unless `resumed` allows it or it only waits. Closing the generator cancels the calls that are still running.
    """
    slots = asyncio.Semaphore(limit)

    async def finish(intent: ToolIntent) -> ToolFinished:
        async with slots:
            started = perf_counter()
            outcome = await _run_call(intent.call, toolbox, replace(caller, ordinal=intent.ordinal), resumed)
            milliseconds = round((perf_counter() - started) * 1000)
        result = ToolResult(intent.call.id, outcome.text, outcome.images)
        return ToolFinished(intent, result, outcome.failed, milliseconds, outcome.label)

    running = [asyncio.create_task(finish(intent), name=f"tool {intent.call.name}") for intent in intents]
    try:
        for ended in asyncio.as_completed(running):
            yield await ended
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _run_call(call: ToolCall, toolbox: Toolbox, caller: Caller, resumed: RepeatApprovals | None) -> ToolOutcome:
    if resumed is None:
        return await toolbox.run(call, caller)
    again = toolbox.effect(call.name).repeatable or caller.ordinal in resumed
    if not (again or await toolbox.waits(call.name, caller)):
        return ToolOutcome(MAY_HAVE_RUN, Label.OWNER, failed=True)
    return await toolbox.run(call, caller, approval=resumed.get(caller.ordinal), again=True)
