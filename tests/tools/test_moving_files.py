"""Moving, deleting, searching, and listing what is below."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.agent.policy import Act, Policy
from gateway.agent.toolbox import Toolbox
from gateway.domain.conversation.tools import Caller
from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label
from gateway.tools import Services
from gateway.tools.files import tools
from gateway.workspace.files.search import search_files
from gateway.workspace.files.tree import Workspace
from tests.fakes.caller import CALLER
from tests.fakes.toolboxes import toolbox_of
from tests.tools.test_files import Desk

TEXT = "<!-- CORE:LOCK -->\nrules\n<!-- /CORE:LOCK -->\n"


class Office(Desk):
    """With checkpoints, and with a search in this process; `asked` is what a person was asked."""

    def __post_init__(self) -> None:
        self.kept: list[str] = []
        self.asked: list[Act] = []
        self.toolbox = self.toolbox_with(self.keep)

    def toolbox_with(self, keep: Callable[[str], Awaitable[Json]] | None) -> Toolbox:
        services = Services(Workspace(self.root, self), keep=keep, find=self.find)
        return toolbox_of(tools(services), self.spill, Policy(Label.OWNER, ask=self.ask))

    async def keep(self, reason: str) -> Json:
        self.kept.append(reason)
        return None

    async def ask(self, act: Act, _caller: Caller) -> JsonObject:
        self.asked.append(act)
        return {"waiting": True}

    async def find(self, *arguments: Json) -> Json:
        return search_files(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def office(tmp_path: Path) -> Office:
    (tmp_path / "notes/deep").mkdir(parents=True)
    (tmp_path / "a.md").write_text("tea")
    (tmp_path / "notes/b.md").write_text("more tea")
    (tmp_path / "notes/deep/c.txt").write_text("coffee")
    return Office(tmp_path)


async def test_a_file_moves_after_a_checkpoint(office: Office) -> None:
    assert await office.call("move_file", path="a.md", to="new/b.md") == {"ok": True, "path": "new/b.md"}
    assert office.kept == ["before a move"]
    assert (office.root / "new/b.md").read_text() == "tea"
    assert not (office.root / "a.md").exists()
    assert office.recorded[0][0] == "new/b.md"


async def test_what_is_moved_is_trusted_as_before(office: Office) -> None:
    office.trusted["a.md"] = Label.UNTRUSTED
    await office.call("move_file", path="a.md", to="b.md")
    assert office.labels == [Label.UNTRUSTED]


async def test_nothing_is_overwritten_by_a_move(office: Office) -> None:
    assert (await office.call("move_file", path="a.md", to="notes/b.md"))["error"] == "exists"
    assert (office.root / "a.md").read_text() == "tea"
    assert (office.root / "notes/b.md").read_text() == "more tea"


async def test_a_file_is_deleted_after_a_checkpoint_and_its_empty_folder_with_it(office: Office) -> None:
    assert await office.call("delete_file", path="notes/deep/c.txt") == {"ok": True}
    assert office.kept == ["before a deletion"]
    assert not (office.root / "notes/deep").exists()
    assert (office.root / "notes").exists()


async def test_without_a_checkpoint_nothing_is_done_or_a_person_is_asked(office: Office) -> None:
    async def fails(_reason: str) -> Json:
        raise OwnerMustAct("the disk is full")

    office.toolbox = office.toolbox_with(fails)
    for tool, more in (("delete_file", {}), ("move_file", {"to": "b.md"})):
        answer = await office.call(tool, path="a.md", **more)
        assert (answer["error"], "disk is full" in answer["message"]) == ("no_checkpoint", True)
    office.toolbox = office.toolbox_with(None)
    assert (await office.call("delete_file", path="a.md"))["waiting"]
    assert office.asked[0].change.preview == "Delete a.md"
    assert (office.root / "a.md").exists()


async def test_what_is_too_large_for_a_checkpoint_asks(office: Office) -> None:
    os.truncate(office.root / "a.md", 100 * 1024**2 + 1)
    assert (await office.call("delete_file", path="a.md"))["waiting"]


@pytest.mark.parametrize("path", ["nothing.md", "notes", "../x", "sessions/a.md"])
async def test_what_is_no_file_of_the_agents_is_explained(office: Office, path: str) -> None:
    (office.root / "sessions").mkdir()
    (office.root / "sessions/a.md").write_text("said")
    assert "message" in await office.call("delete_file", path=path)
    assert "message" in await office.call("move_file", path=path, to="b.md")
    assert "message" in await office.call("move_file", path="a.md", to="sessions/b.md")


async def test_a_link_is_not_moved_to_what_it_shows(office: Office) -> None:
    (office.root / "link.md").symlink_to("a.md")
    assert "message" in await office.call("move_file", path="link.md", to="b.md")
    assert "message" in await office.call("delete_file", path="link.md")


async def test_a_locked_file_is_neither_moved_nor_deleted_nor_hidden(office: Office) -> None:
    (office.root / "house.md").write_text(TEXT)
    (office.root / ".agents").mkdir()
    (office.root / ".agents/AGENTS.md").write_text(TEXT)
    for caller in (CALLER, replace(CALLER, label=Label.UNTRUSTED)):
        office.caller = caller
        assert (await office.call("move_file", path="house.md", to="b.md"))["error"] == "locked"
        assert (await office.call("delete_file", path="house.md"))["error"] == "locked"
    office.caller = CALLER
    assert (await office.call("move_file", path="a.md", to="AGENTS.md"))["error"] == "locked"
    assert office.asked == []
    assert (office.root / "house.md").read_text() == TEXT


async def test_search_finds_lines_and_has_the_label_of_their_files(office: Office) -> None:
    found = await office.call("search_files", pattern="TEA")
    assert [(each["path"], each["line"]) for each in found["matches"]] == [("a.md", 1), ("notes/b.md", 1)]
    assert "more" not in found
    office.trusted["notes/b.md"] = Label.UNTRUSTED
    [tool] = [
        tool for tool in tools(Services(Workspace(office.root, office), find=office.find)) if "search" in tool.name
    ]
    for pattern, label in (("more", Label.UNTRUSTED), ("coffee", Label.OWNER)):
        assert (await tool.run(tool.arguments(pattern=pattern), CALLER)).label is label


async def test_a_bad_pattern_is_explained(office: Office) -> None:
    answer = await office.call("search_files", pattern="(", regex=True)
    assert "regular expression" in answer["message"]


async def test_a_pattern_that_takes_for_ever_ends(tmp_path: Path) -> None:
    from gateway.background.cpu.executor import CpuJobFailed, run_alone

    (tmp_path / "a.md").write_text("a" * 60 + "!")
    with pytest.raises(CpuJobFailed):
        await run_alone(search_files, str(tmp_path), ".", "(a+)+$", None, 5, True, seconds=3.0)
    assert await asyncio.to_thread(os.listdir, tmp_path) == ["a.md"]


async def test_a_list_goes_down_as_far_as_asked(office: Office) -> None:
    names = [entry["name"] for entry in (await office.call("list_files", depth=2))["entries"]]
    assert names == ["a.md", "notes", "notes/b.md", "notes/deep"]
    deep = await office.call("list_files", path="notes", depth=8, glob="*.txt")
    assert deep == {"entries": [{"name": "deep/c.txt", "type": "file", "size": 6}]}
    assert [each["name"] for each in (await office.call("list_files", glob="*.md"))["entries"]] == ["a.md"]
