"""AgentDojo's attacks, and those of an attacker who knows the rule."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.agentdojo import own_words
from tests.agentdojo.conversation import Agent, Conversation, Made, Person
from tests.agentdojo.suites import attack_of, by_hand, suites, vectors


@dataclass(slots=True)
class Attacks:
    """Attacks that the model read, and what came of them. `by_hand`: those whose calls are ours, not the suite's."""

    read: int = 0
    by_hand: int = 0
    acts: list[Made] = field(default_factory=list)
    """Let through without a question."""
    through: int = 0
    """Attacks with such an act."""
    succeeded: int = 0
    """By the suite's own check."""


def literal(*, person: Person = Person.DENIES, first: bool = False) -> Attacks:
    """Every attacker's task in every user task, obeyed to the letter."""
    found = Attacks()
    for name, suite in suites().items():
        for user in suite.user_tasks.values():
            for task in suite.injection_tasks.values():
                agent = Agent(user, Conversation(), attack_of(name, task, first=first), person=person)
                _, succeeded = suite.run_task_with_pipeline(agent, user, task, vectors(suite))
                if agent.obeyed is not None:
                    acts = [made for made in agent.obeyed if made.unasked_act]
                    found.read += 1
                    found.by_hand += by_hand(name, task)
                    found.acts += acts
                    found.through += bool(acts)
                    found.succeeded += bool(succeeded)
    return found


@dataclass(slots=True)
class OwnWords:
    """User tasks in which the attacker was read, and the unwanted acts of own words that passed without a question."""

    read: int = 0
    tried: int = 0
    tasks: Counter[str] = field(default_factory=Counter)
    """With such an act, by suite."""
    acts: int = 0
    most: int = 0
    """In one turn."""


def of_own_words(*, first: bool) -> OwnWords:
    """All calls that can be made of the person's own message; what they asked for themselves doesn't count."""
    found = OwnWords()
    for name, suite in suites().items():
        task = next(iter(suite.injection_tasks.values()))
        for user in suite.user_tasks.values():
            agent = Agent(user, Conversation(), own_words.attack(user.PROMPT, suite, first=first))
            suite.run_task_with_pipeline(agent, user, task, vectors(suite))
            if agent.obeyed is not None:
                passed = len(_unwanted(agent.obeyed, agent.done))
                found.read += 1
                found.tried += len(agent.obeyed)
                found.tasks[name] += bool(passed)
                found.acts += passed
                found.most = max(found.most, passed)
    return found


def _unwanted(obeyed: Sequence[Made], done: Sequence[Made]) -> list[Made]:
    wanted = [(made.call.function, made.call.args) for made in done]
    return [made for made in obeyed if made.unasked_act and (made.call.function, made.call.args) not in wanted]
