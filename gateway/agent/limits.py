"""The limits of a run: model calls, tokens, money and repeated calls."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.domain.conversation.model import Usage
from gateway.domain.conversation.transcript import ToolFinished


@dataclass(frozen=True, slots=True)
class Stop:
    """The limit that ended a run, and the text for the user."""

    limit: str
    text: str


@dataclass(frozen=True, slots=True)
class Spent:
    """The use of one run so far; a resumed run starts with that of its earlier attempts."""

    model_calls: int = 0
    tokens: int = 0
    usd: float = 0.0

    def plus(self, usage: Usage) -> "Spent":
        """The sum after one more model call."""
        tokens = self.tokens + usage.input_tokens + usage.output_tokens
        return Spent(self.model_calls + 1, tokens, self.usd + usage.cost_usd)


UNSPENT = Spent()
TREE_USD = "tree_usd"
"""The name of the limit of a task tree, beside those of `Limits`."""


class Repeats:
    """Counts calls with the same name and arguments, and those of them that gave the same result."""

    def __init__(self) -> None:
        self._same: Counter[tuple[str, str, str]] = Counter()
        self._calls: Counter[tuple[str, str]] = Counter()

    def note(self, finished: Iterable[ToolFinished]) -> None:
        """Count one round of calls; equal calls within a round count once."""
        calls = {(event.intent.call.name, event.intent.call.canonical, event.result.text) for event in finished}
        self._same.update(calls)
        self._calls.update({(name, arguments) for name, arguments, _ in calls})

    def most_repeated(self) -> tuple[str, int]:
        """The tool of the call that gave the same result most often, and how often."""
        return next(((name, times) for (name, _, _), times in self._same.most_common(1)), ("", 0))

    def most_called(self) -> tuple[str, int]:
        """The tool of the call made most often, with any results, and how often."""
        return next(((name, times) for (name, _), times in self._calls.most_common(1)), ("", 0))


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run, and of the money of all runs of a day and of a month; None means no bound.

    The same call may give the same result `repeats` times and may be made `polls` times. The limits of a day and a
    month, which all runs share, are enforced by the model of a run.
    """

    model_calls: int = 40
    tokens: int | None = 2_000_000
    usd: float | None = 0.5
    day_usd: float | None = None
    month_usd: float | None = None
    day_tokens: int | None = None
    repeats: int = 3
    polls: int = 10
    parallel_tools: int = 8

    def stop(self, spent: Spent) -> Stop | None:
        """The limit that forbids a further model call, or None."""
        if spent.model_calls >= self.model_calls:
            return _stop("model_calls", f"this took {spent.model_calls} model calls, the most for one answer")
        if used_up(spent.usd, self.usd):
            cost = f"this cost {dollars(spent.usd)}, and {dollars(self.usd or 0.0)} is the limit for one answer"
            return _stop("usd", cost)
        if self.tokens is not None and spent.tokens >= self.tokens:
            used = f"this used {spent.tokens:,} tokens, and {self.tokens:,} is the limit for one answer"
            return _stop("tokens", used)
        return None

    def stop_repeating(self, repeats: Repeats) -> Stop | None:
        """The limit of repeated calls that was reached, or None."""
        name, times = repeats.most_repeated()
        if times >= self.repeats:
            return _stop("repeats", f"I called {name} {times} times in the same way and learned nothing new")
        name, times = repeats.most_called()
        return _stop("polls", f"I called {name} {times} times in the same way") if times >= self.polls else None


def used_up(spent: float, limit: float | None) -> bool:
    """Whether the money is spent. A free model may run even under a limit of 0."""
    return limit is not None and 0 < spent >= limit


def dollars(amount: float) -> str:
    """An amount for people, in cents; below 10 cents in hundredths of a cent."""
    return f"${amount:.4f}" if 0 < amount < 0.1 else f"${amount:.2f}"


def _stop(limit: str, reason: str) -> Stop:
    kept = 'My work so far is kept. Say "go on" to continue, or tell me what to do differently.'
    return Stop(limit, f"I stopped early: {reason}. {kept}")
