"""Replay: turns of the past, put to another model. Its calls get the results of then; nothing is done or stored.

There is no toolbox here: a call that was not made then, with the same arguments, is told so.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import perf_counter

from gateway.agent.conversation.context import to_messages
from gateway.agent.conversation.fit import fit
from gateway.domain.conversation.model import ModelsExhausted, Prompt, SystemMessage, ToolCall, ToolSpec
from gateway.domain.conversation.transcript import AssistantText, Entry, ToolIntent, ToolResult, UserText
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line
from gateway.domain.text.tokens import estimate
from gateway.flow.turn.loop import SizedModel, reply_of
from gateway.llm.prices import estimate_tool
from gateway.store.transcript.messages import MessageRow

MAX_ROUNDS = 20
NOT_RECORDED = json.dumps({"error": "not_recorded", "message": "This is a replay: only calls made then have results."})


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A turn as it was: the question, the conversation before it, and the calls and words of the agent."""

    before: tuple[Entry, ...]
    asked: tuple[UserText, ...]
    did: tuple[Entry, ...]

    @property
    def calls(self) -> list[str]:
        """The calls, as text."""
        return [_key(entry.call) for entry in self.did if isinstance(entry, ToolIntent)]

    @property
    def answer(self) -> str:
        """The answer."""
        return self.did[-1].text if isinstance(self.did[-1], AssistantText) else ""


@dataclass(frozen=True, slots=True)
class ReplayedTurn:
    """The same turn with another model; `problem` says why it has no answer."""

    then: RecordedTurn
    calls: list[str]
    answer: str
    cost_usd: float
    seconds: float
    problem: str = ""


def recorded(rows: Iterable[MessageRow], since: datetime, until: datetime) -> Iterator[RecordedTurn]:
    """Yield the answered turns of a conversation that were asked in this time."""
    before: list[Entry] = []
    asked: list[UserText] = []
    did: list[Entry] = []
    for entry in (row.entry for row in rows):
        if isinstance(entry, UserText):
            asked.append(entry)
        else:
            did.append(entry)
        if isinstance(entry, AssistantText) and entry.final:
            if asked and since <= asked[0].sent_at < until:
                yield RecordedTurn(tuple(before), tuple(asked), tuple(did))
            before += [*asked, *did]
            asked, did = [], []


def tools_of(turns: Iterable[RecordedTurn]) -> tuple[ToolSpec, ...]:
    """The tools that were called, with the arguments that they were given."""
    arguments: dict[str, set[str]] = defaultdict(set)
    for turn in turns:
        for entry in turn.did:
            if isinstance(entry, ToolIntent):
                arguments[entry.call.name] |= _arguments(entry.call).keys()
    return tuple(
        ToolSpec(name, name, {"type": "object", "properties": {each: {} for each in sorted(names)}}, Label.UNTRUSTED)
        for name, names in sorted(arguments.items())
    )


async def replay(
    turn: RecordedTurn, model: SizedModel, system: str, tools: tuple[ToolSpec, ...], usd: float
) -> ReplayedTurn:
    """Put the turn to the model, for at most this cost."""
    results, began = _results(turn), perf_counter()
    room = model.prompt_budget() - sum(map(estimate_tool, tools))
    entries: list[Entry] = [*turn.before, *turn.asked]
    done = ReplayedTurn(turn, [], "", 0.0, 0.0)
    for _ in range(MAX_ROUNDS):
        messages = (SystemMessage(system), *to_messages(entries))
        prompt = Prompt(fit(messages, room, estimate), tools)
        if done.cost_usd + model.highest(prompt).usd > usd:
            return replace(done, problem="the budget is used up")
        try:
            reply = await reply_of(model, prompt)
        except ModelsExhausted as error:
            return replace(done, problem=one_line(str(error), 300))
        cost = done.cost_usd + reply.usage.cost_usd
        done = replace(done, cost_usd=cost, answer=reply.text, seconds=perf_counter() - began)
        if not reply.calls:
            return done
        for place, asked in enumerate(reply.calls):
            call, found = replace(asked, id=f"replay{len(done.calls):03d}"), results[_key(asked)]
            entries.append(ToolIntent(call, len(done.calls), fields=None if place else reply.fields))
            entries.append(ToolResult(call.id, found.pop(0) if found else NOT_RECORDED))
            done.calls.append(_key(call))
    return replace(done, problem=f"it still called tools after {MAX_ROUNDS} rounds")


def _results(turn: RecordedTurn) -> dict[str, list[str]]:
    texts = {entry.call_id: entry.text for entry in turn.did if isinstance(entry, ToolResult)}
    results: dict[str, list[str]] = defaultdict(list)
    for entry in turn.did:
        if isinstance(entry, ToolIntent):
            results[_key(entry.call)].append(texts.get(entry.call.id, NOT_RECORDED))
    return results


def _arguments(call: ToolCall) -> dict[str, object]:
    try:
        found = json.loads(call.arguments or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _key(call: ToolCall) -> str:
    return f"{call.name}({json.dumps(_arguments(call), sort_keys=True, ensure_ascii=False)})"


def report(title: str, done: Sequence[ReplayedTurn]) -> str:
    """The differences, as Markdown."""
    same = sum(turn.calls == turn.then.calls for turn in done)
    cost, seconds = sum(turn.cost_usd for turn in done), sum(turn.seconds for turn in done)
    head = f"# {title}\n\n{len(done)} turns; the same calls in {same}; ${cost:.4f}; {seconds:.1f} s."
    return "\n\n".join([head, *map(_section, done)]) + "\n"


def _section(turn: ReplayedTurn) -> str:
    asked, calls = turn.then.asked[0], "the same calls" if turn.calls == turn.then.calls else "other calls"
    about = f"## {asked.sent_at:%Y-%m-%d %H:%M} {one_line(asked.text, 100)}"
    costs = f"{calls}; ${turn.cost_usd:.4f}; {turn.seconds:.1f} s{turn.problem and f'. Not answered: {turn.problem}'}"
    then, now = _shown(turn.then.calls, turn.then.answer), _shown(turn.calls, turn.answer)
    return "\n\n".join([about, costs, "**Then**", then, "**Now**", now])


def _shown(calls: Sequence[str], answer: str) -> str:
    lines = [*(f"- `{one_line(call, 200)}`" for call in calls), *(f"> {line}" for line in answer.splitlines())]
    return "\n".join(lines) or "> (nothing)"
