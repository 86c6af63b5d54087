"""`supaclaw agents`: the agents that files of the workspace describe."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import typer

from gateway.agent.work.agents import Agents, ListedAgent
from gateway.cli.console import echo
from gateway.cli.output import AsJson, print_rows
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.workspace.files.tree import Workspace

COLUMNS = ("slug", "description", "model", "state", "problem")
Slug = Annotated[str, typer.Argument(metavar="SLUG", help="The file's name without .md.")]


@dataclass(frozen=True, slots=True)
class Row:
    """One agent, as its file is now."""

    slug: str
    description: str
    model: str | None
    tools: tuple[str, ...] | None
    skills: tuple[str, ...] | None
    budget: float | None
    state: str
    problem: str
    prompt: str

    @classmethod
    def of(cls, listed: ListedAgent) -> Self:
        """A wrong file has nothing but its problem."""
        if (agent := listed.agent) is None:
            return cls(listed.slug, "", None, None, None, None, "wrong", listed.problem, "")
        head = agent.head
        state = "on" if head.is_active else "off"
        rest = (head.tools, agent.skills, head.budget, state, listed.problem, agent.prompt)
        return cls(agent.slug, head.description, agent.model, *rest)


def show_all(as_json: AsJson = False) -> None:
    """List the agents, with what is wrong with a file."""
    print_rows([Row.of(each) for each in _all()], COLUMNS, as_json=as_json, none="No agents.")


def show(slug: Slug, as_json: AsJson = False) -> None:
    """Show one agent with its prompt."""
    row = Row.of(_one(slug))
    if as_json:
        print_rows([row], COLUMNS, as_json=True)
        return
    echo(f"{row.slug}: {row.state}. {row.description or row.problem}")
    for name, value in (("model", row.model), ("tools", row.tools), ("skills", row.skills), ("budget", row.budget)):
        if value is not None:
            echo(f"{name}: {', '.join(value) if isinstance(value, tuple) else value}")
    if row.prompt:
        echo(f"\n{row.prompt}")


def check(slug: Slug) -> None:
    """Check an agent's file; exits with 1 if it can't be used."""
    row = Row.of(_one(slug))
    if row.problem:
        raise OwnerMustAct(f"{slug}: {row.problem}")
    echo(f"{slug}: the file is right, and the agent is {row.state}")


def _all() -> Sequence[ListedAgent]:
    workspace = Workspace(Environment.read(os.environ).workspace)
    return asyncio.run(Agents(workspace).list_all())


def _one(slug: str) -> ListedAgent:
    found = next((each for each in _all() if each.slug == slug), None)
    if found is None:
        raise OwnerMustAct(f"there is no agent {slug!r}; `supaclaw agents list` names them")
    return found
