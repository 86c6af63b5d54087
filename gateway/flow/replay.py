"""Replay: turns of the past, put to another model. Its calls get the results of then; nothing is done or stored.

There is no toolbox here: a call that was not made then, with the same arguments, is told so.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import perf_counter

from gateway.agent.conversation.context import to_messages
from gateway.agent.conversation.fit import fit
from gateway.domain.conversation.model import ModelsExhausted, Prompt, SystemMessage, ToolCall, ToolSpec
from gateway.domain.conversation.transcript import AssistantText, Entry, ToolIntent, ToolResult, UserText
from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line
from gateway.domain.text.tokens import estimate
from gateway.flow.turn.loop import SizedModel, reply_of
from gateway.workspace.skills.parsing import Skill

MAX_ROUNDS = 20
NOT_RECORDED = json.dumps({"error": "not_recorded", "message": "This is a replay: only calls made then have results."})


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """An answered turn as it was, after the conversation before it; `results` are by the ids of the calls."""

    before: Sequence[Entry]
    asked: Sequence[UserText]
    calls: Sequence[ToolCall]
    results: Mapping[str, str]
    answer: str


@dataclass(slots=True)
class ReplayedTurn:
    """The same turn with another model; `problem` says why it has no answer."""

    then: RecordedTurn
    calls: list[ToolCall] = field(default_factory=list)
    answer: str = ""
    cost_usd: float = 0.0
    seconds: float = 0.0
    problem: str = ""

    @property
    def same_calls(self) -> bool:
        """Whether its calls are those of then, in order."""
        return list(map(_key, self.calls)) == list(map(_key, self.then.calls))


def with_skill(entries: Sequence[Entry], skill: Skill) -> list[Entry]:
    """The entries as if this had been the skill of its name, wherever it was loaded."""
    load = {"action": "load", "name": skill.name}
    intents = [entry.call for entry in entries if isinstance(entry, ToolIntent) and entry.call.name == "skills"]
    loads = {call.id for call in intents if json.loads(call.valid_arguments) == load}
    text = json.dumps({"name": skill.name, "version": skill.version, "instructions": skill.body})
    return [replace(e, text=text) if isinstance(e, ToolResult) and e.call_id in loads else e for e in entries]


def recorded(entries: Sequence[Entry], since: datetime, until: datetime) -> Iterator[RecordedTurn]:
    """Yield the answered turns of a conversation that were asked in this time."""
    begins = 0
    for end, last in enumerate(entries, start=1):
        if not (isinstance(last, AssistantText) and last.final):
            continue
        turn, before, begins = entries[begins:end], entries[:begins], end
        asked = [entry for entry in turn if isinstance(entry, UserText)]
        if asked and since <= asked[0].sent_at < until:
            calls = [entry.call for entry in turn if isinstance(entry, ToolIntent)]
            results = {entry.call_id: entry.text for entry in turn if isinstance(entry, ToolResult)}
            yield RecordedTurn(before, asked, calls, results, last.text)


def tools_of(turns: Iterable[RecordedTurn]) -> tuple[ToolSpec, ...]:
    """The tools that were called, with the arguments that they were given."""
    arguments = defaultdict[str, dict[str, Json]](dict)
    for call in (call for turn in turns for call in turn.calls):
        arguments[call.name] |= {name: {} for name in json.loads(call.valid_arguments)}
    return tuple(
        ToolSpec(name, name, {"type": "object", "properties": dict(sorted(given.items()))}, Label.UNTRUSTED)
        for name, given in sorted(arguments.items())
    )


async def replay(
    turn: RecordedTurn, model: SizedModel, system: str, tools: tuple[ToolSpec, ...], usd: float
) -> ReplayedTurn:
    """Put the turn to the model, for at most this cost."""
    done, results, began = ReplayedTurn(turn), defaultdict[str, list[str]](list), perf_counter()
    for call in turn.calls:
        results[_key(call)].append(turn.results.get(call.id, NOT_RECORDED))
    room, entries = model.prompt_budget() - sum(tool.tokens for tool in tools), [*turn.before, *turn.asked]
    for _ in range(MAX_ROUNDS):
        prompt = Prompt(fit((SystemMessage(system), *to_messages(entries)), room, estimate), tools)
        if done.cost_usd + model.highest(prompt).usd > usd:
            return replace(done, problem="the budget is used up")
        try:
            reply = await reply_of(model, prompt)
        except ModelsExhausted as error:
            return replace(done, problem=one_line(str(error), 300))
        done.cost_usd += reply.usage.cost_usd
        done.answer, done.seconds = reply.text, perf_counter() - began
        if not reply.calls:
            return done
        for place, asked in enumerate(reply.calls):
            call, found = replace(asked, id=f"replay{len(done.calls):03d}"), results[_key(asked)]
            entries.append(ToolIntent(call, len(done.calls), fields=None if place else reply.fields))
            entries.append(ToolResult(call.id, found.pop(0) if found else NOT_RECORDED))
            done.calls.append(call)
    return replace(done, problem=f"it still called tools after {MAX_ROUNDS} rounds")


def _key(call: ToolCall) -> str:
    return f"{call.name}({call.canonical.strip() or '{}'})"


def report(title: str, done: Sequence[ReplayedTurn]) -> str:
    """The differences, as Markdown."""
    same = sum(turn.same_calls for turn in done)
    cost, seconds = sum(turn.cost_usd for turn in done), sum(turn.seconds for turn in done)
    head = f"# {title}\n\n{len(done)} turns; the same calls in {same}; ${cost:.4f}; {seconds:.1f} s."
    return "\n\n".join([head, *map(_section, done)]) + "\n"


def _section(turn: ReplayedTurn) -> str:
    asked, calls = turn.then.asked[0], "the same calls" if turn.same_calls else "other calls"
    about = f"## {asked.sent_at:%Y-%m-%d %H:%M} {one_line(asked.text, 100)}"
    costs = f"{calls}; ${turn.cost_usd:.4f}; {turn.seconds:.1f} s{turn.problem and f'. Not answered: {turn.problem}'}"
    return "\n\n".join([about, costs, "**Then**", _shown(turn.then), "**Now**", _shown(turn)])


def _shown(turn: RecordedTurn | ReplayedTurn) -> str:
    made = [f"- `{one_line(f'{call.name}({call.arguments})', 200)}`" for call in turn.calls]
    return "\n".join([*made, *(f"> {line}" for line in turn.answer.splitlines())]) or "> (nothing)"
