"""The to-do list of a run: its steps, and what they look like in `todo/todo.md`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.domain.ids import TaskId
from gateway.domain.principals import Label

TODO = "todo"
"""The tool's name."""
FILE = "todo/todo.md"
FREE_CALLS = 2
"""Tool calls that an unattended run may make before it has a list."""
STEP_CALLS = 5
"""Further ones that it may make before it has to update the list: what counts as a step."""
TRIVIAL_CALLS = 10
"""All calls of a run that has declared itself trivial."""

_HEAD = "# To-do lists of the work under way\n\nThe gateway writes this; runs change their own section with `todo`.\n"
_DONE = ("[x] ", "[X] ")


@dataclass(frozen=True, slots=True)
class TodoStep:
    """One step of a list."""

    text: str
    done: bool = False

    @classmethod
    def parse(cls, line: str) -> "TodoStep":
        """A step as the agent writes it: one that is done may begin with [x]."""
        text = " ".join(line.removeprefix("- ").split()).replace("<!--", "<!-")
        return cls(text.removeprefix("[x] ").removeprefix("[X] ").removeprefix("[ ] "), text.startswith(_DONE))

    def __str__(self) -> str:
        return f"[{'x' if self.done else ' '}] {self.text}"


@dataclass(frozen=True, slots=True)
class TodoList:
    """A run's to-do list. `ordinal` is that of the call that wrote it last; `trivial` says why there are no steps."""

    task: TaskId
    title: str
    steps: tuple[TodoStep, ...]
    trivial: str | None
    label: Label
    ordinal: int

    def rewritten(self, steps: Sequence[TodoStep]) -> "TodoList":
        """With other steps; those that were done and are still named stay done. It isn't trivial any more."""
        done = {step.text for step in self.steps if step.done}
        kept = tuple(replace(step, done=step.done or step.text in done) for step in steps)
        return replace(self, steps=kept, trivial=None)

    def checked(self, numbers: Sequence[int]) -> "TodoList":
        """With these steps done, counted from 1; raises `IndexError` for a number that there is not."""
        if any(not 1 <= number <= len(self.steps) for number in numbers):
            raise IndexError(f"the list has {len(self.steps)} steps")
        steps = enumerate(self.steps, start=1)
        return replace(self, steps=tuple(replace(step, done=step.done or n in numbers) for n, step in steps))


def lacking(todo: TodoList | None, ordinal: int) -> str | None:
    """Why an unattended run may not make its call number `ordinal` (from 0) yet, for the model; None if it may."""
    if ordinal < FREE_CALLS:
        return None
    if todo is None:
        return (
            f"After {FREE_CALLS} calls a run that nobody watches needs a to-do list: call {TODO} with steps, then call "
            "this again. If a few more calls will do, say so with trivial."
        )
    if todo.trivial is not None:
        more = f"This has become {TRIVIAL_CALLS} calls, so it isn't trivial: call {TODO} with steps first."
        return None if ordinal < TRIVIAL_CALLS else more
    late = ordinal - todo.ordinal > STEP_CALLS
    return f"Update the list first: {TODO} with done, or with steps if it has changed." if late else None


def rendered(lists: Sequence[TodoList]) -> str:
    """The file: a section for each list; empty without any."""
    sections = [_section(each) for each in lists if each.steps]
    return "\n".join([_HEAD, *sections]) if sections else ""


def _section(todo: TodoList) -> str:
    lines = "".join(f"- {step}\n" for step in todo.steps)
    return f"## {todo.title or 'Run'} ({str(todo.task)[:8]})\n\n{lines}"
