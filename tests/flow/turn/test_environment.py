"""What a principal has of its own."""

import json
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest

from gateway.domain.conversation.model import ToolCall
from gateway.domain.ids import PrincipalId, TaskId
from gateway.domain.principals import Label
from gateway.domain.text.tokens import estimate
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.labels import ContentLabels
from gateway.flow.turn.environment import AgentEnvironments
from gateway.workspace.journal.files import Place
from tests.fakes.caller import CALLER
from tests.flow.path import MEMBER, MessagePath, call, in_turn, results, said
from tests.workspace.tool_files.writing import put, tool_md


async def test_the_owner_works_in_the_workspace(path: MessagePath) -> None:
    path.model.answer = in_turn(said("", call("write_file", path="notes.md", content="mine")), said("done"))
    async with path.working():
        await path.ask("write it down")
    assert (path.workspace / "notes.md").read_text() == "mine"
    assert await path.rows("select path, label from files") == [("notes.md", Label.OWNER)]


async def test_a_member_has_files_apart_and_cannot_see_the_owners(path: MessagePath) -> None:
    (path.workspace / "secret.md").write_text("the owner's")
    path.model.answer = in_turn(
        said(
            "",
            call("read_file", path="secret.md"),
            call("read_file", path="../../workspace/secret.md"),
            call("read_file", path=str(path.workspace / "secret.md")),
            call("write_file", path="notes.md", content="theirs"),
            call("list_files"),
        ),
        said("done"),
    )
    async with path.working():
        await path.ask("look around", sender=MEMBER, chat=MEMBER)
    same, up, absolute, written, _ = results(path.model.prompts[1])
    assert same == {"exists": False, "content": None}
    assert "the owner's" not in repr((up, absolute))
    assert written["ok"] is True
    assert "secret.md" not in repr(results(path.model.prompts[1])[4])
    assert not (path.workspace / "notes.md").exists()
    [(member, label)] = await path.rows("select principal_id, label from files")
    home = path.workspace.parent / "principals" / str(member)
    assert (home / "notes.md").read_text() == "theirs"
    assert (label, home.stat().st_mode & 0o777) == (Label.KNOWN, 0o700)


async def test_a_group_has_files_of_its_own_even_when_the_owner_writes_there(path: MessagePath) -> None:
    path.model.answer = in_turn(said("", call("write_file", path="notes.md", content="ours")), said("done"))
    async with path.working():
        await path.ask("write it down", chat="g", private=False)
    assert not (path.workspace / "notes.md").exists()


async def test_everybody_meets_the_same_agent_and_keeps_a_page_of_their_own(path: MessagePath) -> None:
    (path.workspace / "SOUL.md").write_text("You are kind.")
    (path.workspace / "USER.md").write_text("Ada likes tea.")
    async with path.working():
        await path.ask("hello")
        await path.ask("hello", sender=MEMBER, chat=MEMBER)
    mine, theirs = (prompt.messages[0].text for prompt in path.model.prompts)
    assert "You are kind." in mine
    assert "You are kind." in theirs
    assert "Ada likes tea." in mine
    assert "Ada likes tea." not in theirs


async def test_a_long_result_is_kept_as_a_file(path: MessagePath) -> None:
    (path.workspace / "long.md").write_text("line\n" * 10_000)
    for n in range(600):
        (path.workspace / f"a-file-with-a-name-long-enough-{n:04}").touch()
    path.model.answer = in_turn(said("", call("list_files")), said("done"))
    async with path.working():
        await path.ask("what is there?")
    [listing] = results(path.model.prompts[1])
    assert listing["truncated"] is True
    assert (path.workspace / listing["path"]).is_file()


async def test_the_tools_schemas_count_against_the_prompts_budget(path: MessagePath) -> None:
    path.model.budget = path.environments.of(path.people.owner.id).lean.schema_tokens + 3_000
    async with path.working():
        for _ in range(4):
            await path.ask("word " * 1_000)
    assert all(estimate(repr(prompt.messages)) < 3_000 for prompt in path.model.prompts)
    assert path.model.answered[-1].startswith("word ")


async def test_homes_that_were_let_go_are_built_anew(path: MessagePath) -> None:
    environments, owner = path.environments, path.people.owner.id
    before = environments.of(owner)
    assert environments.of(owner) is before
    environments.forget()
    assert environments.of(owner) is not before
    assert environments.of(owner).workspace.root == before.workspace.root


async def test_times_are_told_on_the_principals_own_clock(path: MessagePath) -> None:
    (path.workspace / "USER.md").write_text("# About the user\n\n- Time zone: Asia/Tokyo\n")
    configured: list[str] = []
    environments = replace(path.environments, owner_zone=lambda: configured[-1] if configured else None)
    mine, theirs = environments.of(path.people.owner.id), environments.of(PrincipalId(uuid4()))
    there = f"{datetime.now(UTC).astimezone(ZoneInfo('Asia/Tokyo')).year + 1}-06-01T09:00"
    await path.tell("hello")
    outcome = await mine.toolbox.run(
        ToolCall("1", "cron", json.dumps({"action": "add", "name": "x", "prompt": "y", "run_at": there})), CALLER
    )
    assert json.loads(outcome.text)["next_run"].endswith("09:00 Asia/Tokyo")
    assert (mine.zone(), theirs.zone()) == ("Asia/Tokyo", None)
    (theirs.workspace.root / "USER.md").write_text("Time zone: Europe/Berlin")
    configured.append("America/St_Johns")
    assert (mine.zone(), theirs.zone()) == ("America/St_Johns", "Europe/Berlin")


async def test_locked_text_that_a_tool_changes_comes_back_and_the_owner_is_told(path: MessagePath) -> None:
    locked = "<!-- CORE:LOCK -->\nrules\n<!-- /CORE:LOCK -->\n"
    agents = path.workspace / "AGENTS.md"
    agents.write_text(locked)
    path.model.answer = in_turn(said("", call("send", text="x")), said("done"), said("", call("look", text="x")))

    async def tamper() -> None:
        agents.write_text("mine")

    path.workshop.during = tamper
    async with path.working():
        await path.ask("work")
        await path.channel.until(lambda texts: any("locked text" in text for text in texts))
    assert agents.read_text() == locked
    [result] = results(path.model.prompts[1])
    assert (result["error"], json.loads(result["result"])) == ("locked", {"did": "x"})
    assert (path.workspace.parent / "replaced" / str(path.people.owner.id) / "AGENTS.md").read_text() == "mine"


async def test_what_a_tool_writes_into_open_text_stays(path: MessagePath) -> None:
    locked = "<!-- CORE:LOCK -->\nrules\n<!-- /CORE:LOCK -->\n<!-- AI:OPEN -->\n<!-- /AI:OPEN -->\n"
    agents = path.workspace / "AGENTS.md"
    agents.write_text(locked)
    learned = [{"old_text": "<!-- AI:OPEN -->\n", "new_text": "<!-- AI:OPEN -->\n- Answer in French.\n"}]
    path.model.answer = in_turn(said("", call("edit_file", path="AGENTS.md", edits=learned)), said("done"))
    async with path.working():
        await path.ask("answer in French from now on")
        agents.write_text(agents.read_text().replace("rules", "the owner's new rules"))
        path.model.answer = in_turn(said("", call("look", text="x")), said("done"))
        await path.ask("look")
    assert "- Answer in French.\n" in agents.read_text()
    assert "the owner's new rules" in agents.read_text()


@pytest.mark.parametrize("kind", [AgentEnvironments, Workspaces, ContentLabels])
def test_nothing_that_asks_or_watches_can_be_left_out(
    kind: type[AgentEnvironments | Workspaces | ContentLabels],
) -> None:
    assert [field.name for field in fields(kind) if field.init and field.default is not MISSING] == []
    assert [field.name for field in fields(kind) if field.init and field.default_factory is not MISSING] == []


async def test_a_confirmed_tool_file_reaches_forks_too(path: MessagePath) -> None:
    environments, owner, fork = path.environments, path.people.owner.id, TaskId(uuid4())
    await environments.refresh()
    before = [environments.of(owner), environments.of(owner, fork)]
    put(path.workspace, text=tool_md())
    library = path.tool_files.library
    await library.confirm("weather", (await library.get("weather")).look.sha256)
    await environments.refresh()
    assert [environments.of(owner), environments.of(owner, fork)] != before
    assert environments.of(owner, fork) is not before[1]


async def test_the_files_of_a_fork_are_where_its_labels_look(path: MessagePath) -> None:
    asked: list[Place] = []
    workspaces = replace(path.environments.workspaces, unverified=lambda place: bool(asked.append(place)))
    fork = workspaces.of_fork(path.people.owner.id, TaskId(uuid4()))
    await fork.labels.of("sessions/2026/one.md", "any")
    assert [place.root for place in asked] == [fork.root]
