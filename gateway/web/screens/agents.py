"""Agents: the files that describe them, to edit, check and test."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import Depends, Form
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from gateway.agent.work import task_trees
from gateway.agent.work.agents import ListedAgent
from gateway.beside import at_most
from gateway.domain.ids import TaskId
from gateway.domain.principals import Label
from gateway.domain.text.texts import json_text
from gateway.domain.work.tasks import Status
from gateway.domain.work.trees import LONGEST_INPUT
from gateway.flow.trees.control import ProgramRequest
from gateway.store.work.trees import NodeRow
from gateway.web.auth.access import OWNER, SignedIn
from gateway.web.files import preview
from gateway.web.http.bodies import Text
from gateway.web.http.errors import Refused, existing
from gateway.web.pages import Screen
from gateway.web.screens import add_board, files
from gateway.web.screens.settings import model_names
from gateway.web.screens.tasks import spent, text_of
from gateway.web.site import AtSite, Site
from gateway.workspace.agents import FOLDER, MAX_BYTES, AgentHead, BadAgent, parse
from gateway.workspace.files.paths import WorkspacePath

HERE = "/agents"
TEST_SECONDS = 300
screen = Screen(HERE, "Agents", "bot", 40)


class AgentForm(BaseModel):
    """An agent as its file says it, or as chosen; `all_of` names what it has as its person does, whatever is chosen."""

    content: Annotated[str, Field(max_length=MAX_BYTES)] = ""
    sha256: Annotated[str, Field(max_length=64)] = ""
    title: Text = ""
    description: Text = ""
    model: Text = ""
    budget: float | None = None
    tools: list[str] = Field(default_factory=list)
    skills: list[str] = Field(default_factory=list)
    all_of: list[Literal["tools", "skills"]] = Field(default_factory=list)
    prompt: Annotated[str, Field(max_length=MAX_BYTES)] = ""

    def text(self, before: AgentHead | None) -> str:
        """The file; fields of the head that the form doesn't have stay."""
        if self.content:
            return self.content
        head = before.model_dump(mode="json", exclude_unset=True) if before else {}
        known = {skill["name"]: skill for skill in head.get("skills") or ()}
        skills = [known.get(name, name) for name in self.skills]
        head |= {"name": self.title, "description": self.description, "model": self.model or None}
        head |= {"budget": self.budget, "tools": self.tools, "skills": skills} | dict.fromkeys(self.all_of)
        lines = [f"{key}: {json_text(value)}" for key, value in head.items() if value is not None]
        return "\n".join(["---", *lines, "---", self.prompt, ""])


class NewAgentForm(AgentForm):
    """The agent, and the name of its file without .md."""

    name: Annotated[Text, Field(max_length=100)]


async def _find_agent(site: AtSite, name: str) -> ListedAgent:
    return existing(await site.trees.agents.listed(name), f"There is no agent {name[:80]!r}.")


Found = Annotated[ListedAgent, Depends(_find_agent)]


@screen.get(f"{HERE}/form", dependencies=OWNER)
async def new(site: AtSite) -> HTMLResponse:
    """The form of a new agent."""
    return HTMLResponse(site.pages.piece("agent_form.html", agent=None, name="", sha256="", **await _choices(site)))


@screen.get(f"{HERE}/{{name}}/details", dependencies=OWNER)
async def details(site: AtSite, name: str, listed: Found) -> HTMLResponse:
    """A form with its fields, its file, and a form for a test task."""
    path = WorkspacePath.parse(_path(name))
    file = await preview(site.files.workspace, path) if listed.has_file else None
    shown = {"name": name, "file": file, "agent": listed.agent, **await _choices(site)}
    return HTMLResponse(site.pages.piece("agent_details.html", **shown))


async def _choices(site: Site) -> Mapping[str, Sequence[str]]:
    skills = [each.name for each in await site.tools.skills.list_all()]
    return {"models": await asyncio.to_thread(model_names, site), "tools": list(site.tools.names()), "skills": skills}


@screen.post(HERE, status_code=204, dependencies=OWNER)
async def add(site: AtSite, form: Annotated[NewAgentForm, Form()]) -> None:
    """Create an agent, unless there is one of that name."""
    await _save(site, form.name.strip(), form.text(None), "")


@screen.post(f"{HERE}/{{name}}", status_code=204, dependencies=OWNER)
async def save(site: AtSite, name: str, listed: Found, form: Annotated[AgentForm, Form()]) -> None:
    """Save a new text of its file, if that describes an agent."""
    await _save(site, name, form.text(listed.agent.head if listed.agent else None), form.sha256)


@screen.post(f"{HERE}/{{name}}/remove", status_code=204, dependencies=[*OWNER, Depends(_find_agent)])
async def remove(site: AtSite, name: str) -> None:
    """Delete its file, after a checkpoint."""
    await files.delete(site, _path(name))


@screen.post(f"{HERE}/{{name}}/test")
async def test(
    site: AtSite, caller: SignedIn, name: str, input: Annotated[Text, Form(min_length=1, max_length=LONGEST_INPUT)]
) -> HTMLResponse:
    """Run a task now and show its result, which goes to no chat."""
    site.rate_limiter.spend(caller.account)
    made = await site.trees.control.start(ProgramRequest(name, input, Label.OWNER, caller.account))
    top = await site.while_entitled(_outcome(site, made.task), caller.session)
    about = spent(top.cost_usd, top.tokens)
    return HTMLResponse(site.pages.piece("agent_test.html", top=top, about=about, text=text_of(top)))


async def _outcome(site: Site, task: TaskId) -> NodeRow:
    """The task once its tree is over or waits for a person, or after `TEST_SECONDS`."""
    async with at_most(TEST_SECONDS), aclosing(site.trees.traces.follow(task, tree=True)) as following:
        async for progress in following:
            if Status.NEEDS_HUMAN_REVIEW in progress.counts:
                break
    return (await site.database.read(lambda conn: task_trees.show(conn, site.owner.id, str(task))))[0]


async def _save(site: Site, name: str, content: str, sha256: str) -> None:
    try:
        parse(name, content.replace("\r\n", "\n").encode())
    except BadAgent as error:
        raise Refused(400, "bad_agent", f"Not saved: {error}", param="content") from None
    await files.save(site, _path(name), content, sha256)


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.md"


async def _pieces(site: Site) -> Mapping[str, str]:
    agents, made = site.trees.agents, dict[str, str]()
    for each in await agents.list_all():
        trusted = await agents.label(each.agent) is Label.OWNER
        made[f"agent-{each.slug}"] = site.pages.piece("agent.html", listed=each, trusted=trusted)
    return made


add_board(screen, _pieces, "agents.html")
