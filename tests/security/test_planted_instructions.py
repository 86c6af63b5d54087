"""Instructions are the person's alone: a command makes none, where there are none either, in any jail."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.agent.work.agents import Agents
from gateway.domain.conversation.model import ToolCall
from gateway.domain.principals import Label
from gateway.flow.unattended.triggers import TriggerRequest, Triggers
from gateway.sandbox.command import Tier
from gateway.sandbox.remote.service import ContainerWorkshop
from gateway.sandbox.workshop import Workshop
from gateway.store.connection.pool import Database
from gateway.workspace.files.tree import Workspace
from gateway.workspace.instructions import Persona, workflow
from gateway.workspace.locks import REPLACED_MARK, LockKeeper, LockWatch, OwnerEdits
from tests.fakes.caller import CALLER
from tests.fakes.eventually import eventually
from tests.flow.path import FakeModel, MessagePath, build, said
from tests.sandbox.tiers import confines
from tests.tools.desk import Desk

pytestmark = pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")

PLANT = (
    "echo EVIL > TOOLS.md; echo EVIL > USER.md; echo EVIL > heartbeat.md; ln notes/evil.md HEARTBEAT.md; "
    "ln -s notes/evil.md SOUL.md; mkdir -p .agents/agents .agents/workflows .agents/skills/x .agents/tools/x; "
    "echo EVIL > .agents/agents/helper.md; cp notes/evil.md .agents/workflows/ci.md; echo EVIL > .agents/TOOLS.md; "
    "echo EVIL > .agents/skills/x/SKILL.md; echo EVIL > .agents/tools/x/TOOL.md; "
    "mv .agents .gone; mkdir -p .agents/workflows; cp notes/evil.md .agents/workflows/ci.md; "
    "mkdir -p '.Agents/agents'; cp notes/evil.md .Agents/agents/evil.md; true"
)
WORKSHOPS = {
    "namespaces": Workshop,
    "container": lambda scratch: ContainerWorkshop(scratch, without=frozenset({Tier.NAMESPACES})),
}


@pytest.fixture(params=WORKSHOPS)
async def desk(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    for name in ("sessions", "memory", "uploads", "notes"):
        (tmp_path / "workspace" / name).mkdir(parents=True)
    (tmp_path / "workspace/AGENTS.md").write_text("Be kind.")
    (tmp_path / "workspace/notes/evil.md").write_text("EVIL")
    workshop = WORKSHOPS[request.param](tmp_path / "scratch")
    desk = Desk(tmp_path, workshop)
    whole = not workshop.guards_instructions
    keeper = LockKeeper(desk.root, tmp_path / "aside", OwnerEdits(tmp_path), whole=whole)
    desk.locks = desk.commands.locks = LockWatch(desk.workspace, keeper, desk._tell)
    desk.toolbox = desk.toolbox_of(Label.OWNER)
    yield desk
    await desk.processes.close()
    await workshop.close()


async def followed(workspace: Workspace) -> str:
    """All that the agent would be told to do."""
    persona = Persona(workspace).load()
    agents = [each.agent for each in await Agents(workspace).list_all() if each.has_file]
    return f"{persona} {agents} {await workflow(workspace, 'ci')}"


async def test_what_a_command_makes_is_never_followed_and_is_told(desk: Desk) -> None:
    before = await followed(desk.workspace)
    answer = await desk.run(PLANT)
    assert await followed(desk.workspace) == before
    assert answer["error"] == "locked"
    [told] = desk.told
    assert {each.partition(REPLACED_MARK)[0] for each in told} >= {"TOOLS.md", "USER.md", "SOUL.md"}
    assert all((desk.root / each).lstat() for each in told)
    assert not [each.name for each in desk.root.iterdir() if each.name in {"TOOLS.md", "USER.md", "SOUL.md"}]
    assert not list((desk.root / ".agents").rglob("*.md"))
    assert await followed(desk.workspace) == before
    assert "error" not in await desk.run("ls")


async def test_what_is_there_is_put_back_or_was_never_changed(desk: Desk) -> None:
    texts = {".agents/agents/mine.md": "---\nname: Mine\ndescription: d\n---\nmine", ".agents/workflows/ci.md": "mine"}
    for path, text in texts.items():
        (desk.root / path).parent.mkdir(parents=True, exist_ok=True)
        (desk.root / path).write_text(text)
    before = await followed(desk.workspace)
    await desk.run(f"rm -f AGENTS.md; echo EVIL > .agents/agents/mine.md; echo EVIL > .agents/workflows/ci.md; {PLANT}")
    assert await followed(desk.workspace) == before
    assert {path: (desk.root / path).read_text() for path in texts} == texts


async def test_nothing_follows_it_while_the_command_still_runs(desk: Desk) -> None:
    before = await followed(desk.workspace)
    await desk.spawn("start", command=f"sleep 2; {PLANT}; touch ready; sleep 60")
    await eventually((desk.root / "ready").exists)
    await desk.workspace.settle()  # as a turn does that opens
    assert await followed(desk.workspace) == before


async def test_what_the_agent_may_write_meanwhile_stays(desk: Desk) -> None:
    """Its person has approved it, or the conversation is theirs alone."""
    started = await desk.spawn("start", command="sleep 60")
    await desk.workspace.write("TOOLS.md", "by a tool", Label.OWNER)
    await desk.workspace.write(".agents/agents/new.md", "by the page", Label.OWNER, unlocked=True)
    await desk.workspace.write("AGENTS.md", "by a tool", Label.OWNER)
    await desk.workspace.move("TOOLS.md", "USER.md", Label.OWNER, "")
    await desk.run("ls")
    assert [(desk.root / name).read_text() for name in ("USER.md", "AGENTS.md")] == ["by a tool"] * 2
    assert (desk.root / ".agents/agents/new.md").exists()
    assert desk.told == []
    await desk.spawn("kill", process=started["process"])


async def test_a_file_that_the_owner_makes_while_no_command_runs_stays(desk: Desk) -> None:
    await desk.run("ls")
    async with desk.locks.running():
        (desk.root / "TOOLS.md").write_text("my own")
    await desk.run("ls")
    assert (desk.root / "TOOLS.md").read_text() == "my own"
    assert desk.told == []


async def test_no_stand_ins_are_made(desk: Desk) -> None:
    await desk.run("ls")
    found = sorted(str(each.relative_to(desk.root)) for each in desk.root.rglob("*"))
    assert [each for each in found if each.startswith(".")] == [
        ".agents",
        ".agents/agents",
        ".agents/skills",
        ".agents/tools",
        ".agents/workflows",
    ]
    assert [each for each in found if each.endswith(".md")] == ["AGENTS.md", "notes/evil.md"]


@pytest.fixture
async def path(database: Database, workspace: Path, model: FakeModel) -> AsyncIterator[MessagePath]:
    path = await build(database, workspace, model)
    yield path
    await path.parts.turns.own.processes.close()
    await path.parts.turns.own.commands.workshop.close()


async def test_the_next_trigger_obeys_the_owner_alone_and_the_owner_is_told(path: MessagePath) -> None:
    toolbox = path.environments.of(path.people.owner.id).toolbox
    line = "mkdir -p .agents/workflows; echo EVIL > .agents/workflows/ci.md; echo EVIL > TOOLS.md"
    call = ToolCall("1", "exec", json.dumps({"command": line}))
    path.model.answer = lambda _: said("fine")
    async with path.working():
        await path.ask("hello")
        outcome = await toolbox.run(call, replace(CALLER, label=Label.OWNER))
        assert REPLACED_MARK in outcome.text
        await path.channel.until(lambda texts: any("made instructions" in text for text in texts))
        workspace = path.environments.own.commands.workspace
        triggers = Triggers(path.database, path.people.owner.id, workspace, tuple, path.signals, path.parts.core.clock)
        await triggers.accept(TriggerRequest("ci", "a build", "token"))
        await eventually(lambda: any("a build" in str(prompt.messages) for prompt in path.model.prompts))
        await path.ask("and now?")
    assert not any("EVIL" in str(prompt) for prompt in path.model.prompts)
