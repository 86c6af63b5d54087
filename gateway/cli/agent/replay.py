"""`supaclaw replay`: put conversations of the past to another model, and compare."""

import os
import re
from datetime import datetime
from pathlib import Path
from typing import Annotated

from gateway.agent.conversation.context import system_prompt
from gateway.app.storage.offline import StoredSecrets
from gateway.cli.connections.database import leak_guard, owners_moment, require_owner, with_database
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import Yes, confirm_unless, flag, option
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.domain.conversation.model import PromptPart
from gateway.domain.errors import OwnerMustAct
from gateway.domain.principals import Label
from gateway.flow import replay as replaying
from gateway.flow.replay import RecordedTurn, ReplayedTurn
from gateway.llm.client import ModelClient, build_client
from gateway.store.connection.pool import Database
from gateway.store.transcript import conversations, messages
from gateway.web.markup.markdown import Markdown
from gateway.workspace.files.tree import Workspace
from gateway.workspace.instructions import Persona
from gateway.workspace.skills.parsing import Skill, parse

AgentsFile = Annotated[Path | None, option("Another AGENTS.md (default: yours).", "FILE", exists=True, dir_okay=False)]
SkillFile = Annotated[
    Path | None, option("Another SKILL.md, wherever it was read.", "FILE", exists=True, dir_okay=False)
]


def replay(
    since: Annotated[str, option("The first day, such as 2026-03-01.", "DAY", "--from")],
    model: Annotated[str, option("The model to ask, such as openai/gpt-5.", "MODEL")],
    until: Annotated[str | None, option("The last day (default: the first).", "DAY", "--to")] = None,
    budget: Annotated[float, option("The most that it may cost.", "USD", min=0)] = 1.0,
    agents: AgentsFile = None,
    skill: SkillFile = None,
    page: Annotated[bool, flag("Print an HTML page instead of Markdown.", "--page")] = False,
    yes: Yes = False,
) -> None:
    """Put past days to another model, and compare.

    Prints the differences. Tools answer from the record; nothing is sent, changed or stored.
    """
    first, last = owners_moment(since), owners_moment(until or since, end=True)
    system, other = _system(agents), None if skill is None else parse(skill.read_text("utf-8", "replace"))

    async def work(database: Database) -> str:
        turns, seen = await _recorded(database, first, last, other)
        client, tools, done = await _client(model), replaying.tools_of(turns), list[ReplayedTurn]()
        try:
            if unseen := {each for each in client.describe().chain if each.partition("/")[0] not in seen}:
                question = f"{len(turns)} turns go to {', '.join(unseen)}, whose provider has not seen them. Send them?"
                confirm_unless(yes, question, f"{', '.join(unseen)} has not seen these conversations; add --yes")
            for turn in turns:
                left = budget - sum(each.cost_usd for each in done)
                done.append(await replaying.replay(turn, client, system, tools, left))
        finally:
            await client.close()
        return (await leak_guard(database))(replaying.report(f"Replay with {model}", done))

    report = with_database(work)
    echo(_page(report) if page else report)


def _page(report: str) -> str:
    """The report as an HTML page, each turn rendered by itself, for what is too long isn't rendered."""
    markdown, style = Markdown(), "body { max-width: 50rem; margin: auto; font-family: sans-serif }"
    turns = "\n<hr>\n".join(map(markdown.html, re.split(r"\n\n(?=## )", report)))
    return f'<!doctype html><meta charset="utf-8"><title>Replay</title><style>{style}</style>\n{turns}'


def _system(agents: Path | None) -> str:
    """The persona, trusted no more than anything: nothing can be done here."""
    found = Persona(Workspace(Environment.read(os.environ).workspace)).load()
    own = found.agents.text if agents is None else agents.read_text(encoding="utf-8", errors="replace")
    texts = (own, found.soul.text, found.tools.text, found.own.text)
    return system_prompt([PromptPart(text, Label.UNTRUSTED) for text in texts], Label.UNTRUSTED)


async def _recorded(
    database: Database, since: datetime, until: datetime, skill: Skill | None
) -> tuple[list[RecordedTurn], set[str]]:
    """The owner's turns, and the providers that have seen each of their conversations."""
    turns, seen = list[RecordedTurn](), list[set[str]]()
    async with database.connection() as conn:
        held = await conversations.held_between(conn, (await require_owner(conn)).id, since, until)
        for session, providers in held.items():
            entries = [row.entry for row in await messages.told_until(conn, session)]
            entries = replaying.with_skill(entries, skill) if skill else entries
            if found := [*replaying.recorded(entries, since, until)]:
                turns += found
                seen.append(providers)
    if not turns:
        raise OwnerMustAct("there are no answered turns of yours in this time; `supaclaw sessions` lists conversations")
    return turns, set.intersection(*seen)


async def _client(model: str) -> ModelClient:
    """The model alone, without fallbacks, at temperature 0."""
    environment = Environment.read(os.environ)
    settings = load(environment.config, os.environ, StoredSecrets(environment, os.environ)).models
    alone = settings.model_copy(update={"primary": model, "fallbacks": ()})
    return (await build_client(alone, os.environ, SystemClock())).tuned(0.0, None)
