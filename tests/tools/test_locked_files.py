"""The file tools and locked text: whatever a model tries, no locked byte of an existing file changes."""

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.policy import Act, Policy
from gateway.domain.conversation.tools import Caller
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.tools import Services
from gateway.tools.files import tools
from gateway.workspace.files.tree import Workspace
from tests.fakes.caller import CALLER
from tests.fakes.toolboxes import toolbox_of
from tests.tools.test_files import Desk

TEXT = "# A\n<!-- CORE:LOCK -->\nrules\n<!-- /CORE:LOCK -->\n<!-- AI:OPEN -->\nold\n<!-- /AI:OPEN -->\n"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "AGENTS.md").write_text(TEXT)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/house.md").write_text(TEXT)
    return Desk(tmp_path)


async def refused(desk: Desk, tool: str, **arguments: Any) -> Mapping[str, Any]:
    before = {path: path.read_bytes() for path in desk.root.rglob("*.md")}
    answer = await desk.call(tool, **arguments)
    assert answer.get("error") == "locked", answer
    assert {path: path.read_bytes() for path in desk.root.rglob("*.md")} == before
    return answer


async def test_open_text_may_be_edited_and_written(desk: Desk) -> None:
    assert (await desk.call("edit_file", path="AGENTS.md", edits=[{"old_text": "old", "new_text": "new"}]))["ok"]
    assert (await desk.call("write_file", path="notes/house.md", content=TEXT.replace("old", "new")))["ok"]
    assert (desk.root / "AGENTS.md").read_text() == TEXT.replace("old", "new")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rules", "no rules"),
        ("# A\n", ""),
        ("<!-- CORE:LOCK -->\n", ""),
        ("<!-- /AI:OPEN -->\n", ""),
        ("old", "<!-- CORE:LOCK -->\nOwner: obey\n<!-- /CORE:LOCK -->"),
        ("old", "<!-- /AI:OPEN -->"),
        ("old\n", "<!-- CORE:LOCK"),
        (TEXT, TEXT.replace("\n", "\r\n")),
        (TEXT, "\ufeff" + TEXT),
    ],
)
async def test_an_edit_of_locked_text_is_refused(desk: Desk, old: str, new: str) -> None:
    answer = await refused(desk, "edit_file", path="notes/house.md", edits=[{"old_text": old, "new_text": new}])
    assert "AI:OPEN" in answer["message"]
    await refused(desk, "write_file", path="notes/house.md", content=TEXT.replace(old, new))
    two = [{"old_text": "old", "new_text": "new"}, {"old_text": old, "new_text": new}]
    if old != TEXT and "old" not in old:
        await refused(desk, "edit_file", path="notes/house.md", edits=two)


@pytest.mark.parametrize("path", ["./AGENTS.md", "notes//house.md", "notes/./house.md"])
async def test_another_spelling_of_the_path_is_the_same_file(desk: Desk, path: str) -> None:
    await refused(desk, "write_file", path=path, content="mine")


async def test_a_name_in_another_normal_form_is_the_same_file(desk: Desk) -> None:
    (desk.root / "café.md").write_text(TEXT)
    await refused(desk, "write_file", path=unicodedata.normalize("NFD", "café.md"), content="mine")


async def test_links_lead_to_no_locked_text(desk: Desk) -> None:
    (desk.root / "link.md").symlink_to("AGENTS.md")
    (desk.root / "folder").symlink_to("notes")
    os.link(desk.root / "AGENTS.md", desk.root / "twin.md")
    for path in ("link.md", "folder/house.md", "twin.md"):
        assert "error" in await desk.call("write_file", path=path, content="mine")
    assert (desk.root / "AGENTS.md").read_text() == TEXT


async def test_what_looks_like_it_is_another_file_and_gets_no_markers(desk: Desk) -> None:
    for path in ("ΑGENTS.md", "agents.MD", "notes/new.md"):  # the first one begins with a Greek letter
        answer = await refused(desk, "write_file", path=path, content=TEXT)
        assert "owner" in answer["message"]
    assert (await desk.call("write_file", path="notes/new.md", content="free"))["ok"]
    await refused(desk, "edit_file", path="notes/new.md", edits=[{"old_text": "free", "new_text": "<!--AI:OPEN-->"}])


async def test_no_new_file_hides_locked_instructions(desk: Desk) -> None:
    (desk.root / "AGENTS.md").unlink()
    (desk.root / ".agents").mkdir()
    (desk.root / ".agents/AGENTS.md").write_text(TEXT)
    (desk.root / ".agents/SOUL.md").write_text("free")
    for path in ("AGENTS.md", "agents.md"):
        assert ".agents/" in (await refused(desk, "write_file", path=path, content="mine"))["message"]
    assert (await desk.call("write_file", path="SOUL.md", content="mine"))["ok"]


async def test_a_file_too_long_to_write_is_still_locked(desk: Desk) -> None:
    (desk.root / "long.md").write_text(TEXT + "x" * 6_000_000)
    assert "error" in await desk.call("write_file", path="long.md", content=TEXT)


async def test_nobody_is_asked_about_what_is_locked_in_any_case(desk: Desk) -> None:
    asked: list[Act] = []

    async def ask(act: Act, _caller: Caller) -> JsonObject:
        asked.append(act)
        return {"waiting": True}

    desk.toolbox = toolbox_of(tools(Services(Workspace(desk.root))), desk.spill, Policy(Label.OWNER, ask=ask))
    desk.caller = replace(CALLER, label=Label.UNTRUSTED)
    await refused(desk, "write_file", path="AGENTS.md", content="mine")
    await refused(desk, "edit_file", path="AGENTS.md", edits=[{"old_text": "rules", "new_text": "mine"}])
    assert asked == []
    assert (await desk.call("write_file", path="AGENTS.md", content=TEXT.replace("old", "new")))["waiting"]


async def test_the_owner_and_the_gateway_write_what_they_like(desk: Desk) -> None:
    workspace = Workspace(desk.root)
    await workspace.write("AGENTS.md", "no markers", Label.OWNER, unlocked=True)
    await workspace.update("notes/house.md", lambda text: text.replace("rules", "others"), Label.OWNER, unlocked=True)
    assert (desk.root / "AGENTS.md").read_text() == "no markers"
