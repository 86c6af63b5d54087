"""Agents: the files that describe them, to edit, check and test."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Annotated

from fastapi import Depends, Form
from fastapi.responses import HTMLResponse

from gateway.agent.work import task_trees
from gateway.agent.work.agents import ListedAgent
from gateway.domain.ids import TaskId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Status
from gateway.domain.work.trees import LONGEST_INPUT
from gateway.flow.trees.control import ProgramRequest
from gateway.store.work.trees import NodeRow
from gateway.web.auth.access import OWNER, Caller, signed_in
from gateway.web.files import preview
from gateway.web.http.bodies import Text
from gateway.web.http.errors import Refused
from gateway.web.pages import Screen
from gateway.web.screens import add_board, files
from gateway.web.screens.tasks import spent, text_of
from gateway.web.site import AtSite, Site
from gateway.workspace.agents import FOLDER, MAX_BYTES, BadAgent, parse
from gateway.workspace.files.paths import WorkspacePath

HERE = "/agents"
TEST_SECONDS = 300
EXAMPLE = """\
---
name: Researcher
description: finds and compares sources
tools: [web_search, web_fetch, read_file]
budget: 0.2
---
You look for primary sources. Name each one.
"""
Content = Annotated[str, Form(max_length=MAX_BYTES)]

screen = Screen(HERE, "Agents", "bot", 40)


@screen.get(f"{HERE}/{{name}}/details", dependencies=OWNER)
async def details(site: AtSite, name: str) -> HTMLResponse:
    """A form with its file, and a form for a test task."""
    listed = await _find_agent(site, name)
    path = WorkspacePath.parse(_path(name))
    file = await preview(site.files.workspace, path) if listed.has_file else None
    return HTMLResponse(site.pages.piece("agent_details.html", name=name, file=file))


@screen.post(HERE, status_code=204, dependencies=OWNER)
async def add(site: AtSite, name: Annotated[Text, Form(max_length=100)], content: Content) -> None:
    """Create an agent, unless there is one of that name."""
    await _save(site, name.strip(), content, "")


@screen.post(f"{HERE}/{{name}}", status_code=204, dependencies=OWNER)
async def save(site: AtSite, name: str, content: Content, sha256: Annotated[str, Form(max_length=64)]) -> None:
    """Save a new text of its file, if that describes an agent."""
    await _find_agent(site, name)
    await _save(site, name, content, sha256)


@screen.post(f"{HERE}/{{name}}/remove", status_code=204, dependencies=OWNER)
async def remove(site: AtSite, name: str) -> None:
    """Delete its file, after a checkpoint."""
    await _find_agent(site, name)
    await files.delete(site, _path(name))


@screen.post(f"{HERE}/{{name}}/test")
async def test(
    site: AtSite,
    caller: Annotated[Caller, Depends(signed_in)],
    name: str,
    input: Annotated[Text, Form(min_length=1, max_length=LONGEST_INPUT)],
) -> HTMLResponse:
    """Run a task now and show its result, which goes to no chat."""
    site.rate_limiter.spend(caller.account)
    made = await site.trees.control.start(ProgramRequest(name, input, Label.OWNER, caller.account))
    top = await site.while_entitled(_outcome(site, made.task), caller.session)
    about = spent(top.cost_usd, top.tokens)
    return HTMLResponse(site.pages.piece("agent_test.html", top=top, about=about, text=text_of(top)))


async def _outcome(site: Site, task: TaskId) -> NodeRow:
    """The task once its tree is over or waits for a person, or after `TEST_SECONDS`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(TEST_SECONDS), aclosing(site.trees.traces.follow(task, tree=True)) as following:
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


async def _find_agent(site: Site, name: str) -> ListedAgent:
    listed = await site.trees.agents.listed(name)
    if listed is None:
        raise Refused(404, "not_found", f"There is no agent {name[:80]!r}.")
    return listed


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.md"


async def _pieces(site: Site) -> Mapping[str, str]:
    agents, made = site.trees.agents, dict[str, str]()
    for each in await agents.list_all():
        trusted = await agents.label(each.agent) is Label.OWNER
        made[f"agent-{each.slug}"] = site.pages.piece("agent.html", listed=each, trusted=trusted)
    return made


add_board(screen, _pieces, "agents.html", example=EXAMPLE)
