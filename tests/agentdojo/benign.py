"""User tasks that are done without a question."""

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from gateway.domain.conversation.tools import ToolClass
from tests.agentdojo.classes import CLASSES, OWN_ROWS, QUIET, as_given
from tests.agentdojo.conversation import Agent, Conversation, Made
from tests.agentdojo.plans import Planned
from tests.agentdojo.suites import suites

TURNS = 200


class Kind(StrEnum):
    """The most that a task does."""

    READS = "only read"
    OWN_FILES = "write own files"
    ACTS = "act"


@dataclass(slots=True)
class Tasks:
    """Tasks by what they do. `done`: without a question and right by the suite's own check."""

    all: Counter[Kind] = field(default_factory=Counter)
    done: Counter[Kind] = field(default_factory=Counter)
    questions: int = 0


def without_questions(
    *,
    classes: Mapping[str, ToolClass] = CLASSES,
    spelt: Callable[[object], object] = as_given,
    reads_more: bool = False,
    own_rows: Collection[str] = OWN_ROWS,
    plan: Callable[[Any, Any], Planned] = lambda _user, _suite: Planned(),
) -> Tasks:
    """All user tasks, each in a conversation of its own, with every question answered by no.

    `reads_more`: before it begins, the model reads what others wrote in one more place.
    """
    tasks = Tasks()
    for name, suite in suites().items():
        for user in suite.user_tasks.values():
            chat = Conversation(classes, spelt, own_rows=own_rows)
            reads = [_MORE[name]] if reads_more else []
            agent = Agent(user, chat, reads=reads, plan=plan(user, suite))
            right, _ = suite.run_task_with_pipeline(agent, user, None, {})
            kind = _kind(agent.done)
            tasks.all[kind] += 1
            tasks.done[kind] += bool(right) and not chat.questions
            tasks.questions += chat.questions
    return tasks


def one_long_chat() -> tuple[int, int]:
    """Turns that ask, and questions, in one conversation of tasks from all suites: what fresh conversations hide."""
    tasks = [(suite, user) for suite in suites().values() for user in suite.user_tasks.values()]
    random.Random(26).shuffle(tasks)
    chat, turns = Conversation(), 0
    for turn in range(TURNS):
        suite, user = tasks[turn % len(tasks)]
        before = chat.questions
        suite.run_task_with_pipeline(Agent(user, chat), user, None, {})
        turns += chat.questions > before
    return turns, chat.questions


_MORE: Mapping[str, FunctionCall] = {
    "workspace": FunctionCall(function="get_received_emails", args={}),
    "travel": FunctionCall(function="get_all_hotels_in_city", args={"city": "Paris"}),
    "banking": FunctionCall(function="get_most_recent_transactions", args={"n": 5}),
    "slack": FunctionCall(function="read_channel_messages", args={"channel": "general"}),
}


def _kind(made: Sequence[Made]) -> Kind:
    kinds = {each.kind for each in made}
    if kinds - QUIET:
        return Kind.ACTS
    return Kind.OWN_FILES if ToolClass.WRITE in kinds else Kind.READS
