"""When a run has to end although the model would go on."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.domain.events import ToolFinished
from gateway.domain.model import ToolCall, Usage


@dataclass(frozen=True, slots=True)
class Stop:
    """Which limit ended the run, and the words for the user."""

    limit: str
    text: str


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has used so far; a resumed run starts with what was used before."""

    model_calls: int = 0
    tokens: int = 0
    usd: float = 0.0

    def plus(self, usage: Usage) -> "Spent":
        """After one more model call."""
        tokens = self.tokens + usage.input_tokens + usage.output_tokens
        return Spent(self.model_calls + 1, tokens, self.usd + usage.cost_usd)


UNSPENT = Spent()


class Repeats:
    """Counts calls with the same name and arguments that gave the same result."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str, str]] = Counter()

    def note(self, finished: Iterable[ToolFinished]) -> None:
        """Count one round of calls; equal calls within a round count once."""
        self._seen.update(
            {(event.intent.call.name, _canonical(event.intent.call), event.result.text) for event in finished}
        )

    def most(self) -> tuple[str, int]:
        """The tool of the call repeated most, and how often it was made."""
        for (name, _, _), times in self._seen.most_common(1):
            return name, times
        return "", 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run; None means no bound. `repeats` is how often the same call may give the same result."""

    model_calls: int = 40
    tokens: int | None = 2_000_000
    usd: float | None = 0.5
    repeats: int = 3
    parallel_tools: int = 8

    def stop(self, spent: Spent) -> Stop | None:
        """Why no further model call may be made, or None."""
        if spent.model_calls >= self.model_calls:
            calls = f"this took {spent.model_calls} model calls, the most for one answer"
            return Stop("model_calls", _stopped(calls))
        if self.usd is not None and 0 < spent.usd >= self.usd:
            cost = f"this cost ${spent.usd:.2f}, and ${self.usd:.2f} is the limit for one answer"
            return Stop("usd", _stopped(cost))
        if self.tokens is not None and spent.tokens >= self.tokens:
            used = f"this used {spent.tokens:,} tokens, and {self.tokens:,} is the limit for one answer"
            return Stop("tokens", _stopped(used))
        return None

    def stop_repeating(self, repeats: Repeats) -> Stop | None:
        """Why the calls go in circles, or None."""
        name, times = repeats.most()
        if times < self.repeats:
            return None
        again = f"I called {name} {times} times in the same way and learned nothing new"
        return Stop("repeats", _stopped(again))


def _canonical(call: ToolCall) -> str:
    try:
        return json.dumps(json.loads(call.arguments), sort_keys=True)
    except ValueError:
        return call.arguments


def _stopped(reason: str) -> str:
    return (
        f"I stopped before I was done: {reason}. What I did so far is kept. "
        'Say "go on" to let me continue, or tell me what to do differently.'
    )
