"""The plan of a run: its steps, and what they look like in `todo/todo.md`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.domain.ids import TaskId
from gateway.domain.principals import Label

TODO = "todo"
"""The tool's name."""
FILE = "todo/todo.md"
FREE_CALLS = 2
"""Tool calls that an unattended run may make before it has a plan."""
STEP_CALLS = 5
"""Further ones that it may make before it has to update the plan: what counts as a step."""
TRIVIAL_CALLS = 10
"""All calls of a run that has declared itself trivial."""

_HEAD = "# Plans of the work under way\n\nThe gateway writes this file; runs change their own section with `todo`.\n"
_DONE = ("[x] ", "[X] ")


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan."""

    text: str
    done: bool = False

    @classmethod
    def parse(cls, line: str) -> "PlanStep":
        """A step as the agent writes it: one that is done may begin with [x]."""
        text = " ".join(line.removeprefix("- ").split()).replace("<!--", "<!-")
        return cls(text.removeprefix("[x] ").removeprefix("[X] ").removeprefix("[ ] "), text.startswith(_DONE))

    def __str__(self) -> str:
        return f"[{'x' if self.done else ' '}] {self.text}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one run. `ordinal` is that of the call that wrote it last; `trivial` says why there are no steps."""

    task: TaskId
    title: str
    steps: tuple[PlanStep, ...]
    trivial: str | None
    label: Label
    ordinal: int

    def rewritten(self, steps: Sequence[PlanStep]) -> "Plan":
        """With other steps; those that were done and are still named stay done. It isn't trivial any more."""
        done = {step.text for step in self.steps if step.done}
        kept = tuple(replace(step, done=step.done or step.text in done) for step in steps)
        return replace(self, steps=kept, trivial=None)

    def checked(self, numbers: Sequence[int]) -> "Plan":
        """With these steps done, counted from 1; raises `IndexError` for a number that there is not."""
        if any(not 1 <= number <= len(self.steps) for number in numbers):
            raise IndexError(f"the plan has {len(self.steps)} steps")
        steps = enumerate(self.steps, start=1)
        return replace(self, steps=tuple(replace(step, done=step.done or n in numbers) for n, step in steps))


def lacking(plan: Plan | None, ordinal: int) -> str | None:
    """Why an unattended run may not make its call number `ordinal` (from 0) yet, for the model; None if it may."""
    if ordinal < FREE_CALLS:
        return None
    if plan is None:
        return (
            f"After {FREE_CALLS} calls a run that nobody watches needs a plan: call {TODO} with steps, then call this "
            "again. If a few more calls will do, say so with trivial."
        )
    if plan.trivial is not None:
        more = f"This has become {TRIVIAL_CALLS} calls, so it isn't trivial: call {TODO} with steps first."
        return None if ordinal < TRIVIAL_CALLS else more
    late = ordinal - plan.ordinal > STEP_CALLS
    return f"Update the plan first: {TODO} with done, or with steps if it has changed." if late else None


def rendered(plans: Sequence[Plan]) -> str:
    """The file: a section for each plan; empty without any."""
    sections = [_section(plan) for plan in plans if plan.steps]
    return "\n".join([_HEAD, *sections]) if sections else ""


def _section(plan: Plan) -> str:
    lines = "".join(f"- {step}\n" for step in plan.steps)
    return f"## {plan.title or 'Run'} ({str(plan.task)[:8]})\n\n{lines}"
