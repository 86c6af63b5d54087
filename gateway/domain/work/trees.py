"""Trees of tasks: the limits of a tree, and the tools by which a node acts on it, which their docstrings describe."""

from enum import StrEnum
from typing import Self

from pydantic import Field, JsonValue

from gateway.domain.conversation.tools import ToolArguments

MOST_DEEP, MOST_WIDE, MOST_NODES, MOST_HAND_OFFS = 20, 100, 1_000, 10
"""Levels of a tree, children of one call, tasks of a tree, and hand-offs of one task."""
MOST_LIVE = 5
"""Trees of a member that haven't ended: all share the slots of agents."""
MOST_SHARING = 3
"""Trees under way that one conversation with others' words has started."""
MAIN = "main"
"""The agent that people chat with; as a node it is the persona with all of its tools."""
MODELS = ("default",)
"""The models of `/v1` beside agents of task trees: that agent."""
TREE_TOOLS = frozenset({"start_task", "tasks"})
"""Only for the chat's agent: a node makes subtasks."""
FILES, MOST_FILES = "tasks", 100
"""The folder of the workspace for the files of tasks, and of how many a task knows."""
LONGEST_INPUT, LONGEST_RESULT, LONGEST_NAME = 50_000, 20_000, 80
"""Characters."""


class DoubtAnswer(StrEnum):
    """Answers about a call that may have run: a yes, a no with these words, or any other no."""

    AGAIN = "run it again"
    RAN = "it ran"
    GIVE_UP = "give up"

    @classmethod
    def of(cls, *, approved: bool, comment: str) -> Self:
        """The answer that this stands for; in doubt the call is not repeated, and the task ends."""
        if approved:
            return cls("run it again")
        return cls("it ran") if comment.strip(" .!").lower() == "it ran" else cls("give up")


class Subtask(ToolArguments):
    """One piece of work for an agent."""

    agent: str = Field(MAIN, description="Slug of the agent")
    input: str = Field(min_length=1, max_length=LONGEST_INPUT, description="All it has to know: it sees nothing else")


class CreateSubtask(ToolArguments):
    """Give work to agents: several tasks run side by side. You go on when all have ended, with every result; a failed
    one is a result, too.
    """

    tasks: tuple[Subtask, ...] = Field(min_length=1, max_length=MOST_WIDE)


class Handoff(ToolArguments):
    """Let another agent go on with this task instead of you; it sees all that was said here."""

    agent: str
    reason: str | None = Field(None, max_length=1_000)


class RequestHumanReview(ToolArguments):
    """Ask a person and wait for the answer: approved or not, a comment."""

    question: str = Field(min_length=1, max_length=2_000)


class SaveIntermediateData(ToolArguments):
    """Keep fields of data with the task; fields of before stay."""

    data: dict[str, JsonValue]


class CompleteTask(ToolArguments):
    """End the task with its result."""

    output: str = Field(min_length=1, max_length=LONGEST_INPUT)


class LoadSkill(ToolArguments):
    """The instructions of a skill."""

    name: str
