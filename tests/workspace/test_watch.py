import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.domain.principals import Label
from gateway.workspace.files.tree import Workspace
from gateway.workspace.locks import LockKeeper, LockWatch, OwnerEdits

LOCKED = "<!-- CORE:LOCK -->\nrules\n<!-- /CORE:LOCK -->\n"


class Desk:
    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "workspace"
        self.root.mkdir()
        self.agents = self.root / "AGENTS.md"
        self.agents.write_text(LOCKED)
        self.workspace = Workspace(self.root)
        self.told: list[Sequence[str]] = []
        self.watch = LockWatch(
            self.workspace, LockKeeper(self.root, tmp_path / "aside", OwnerEdits(tmp_path)), self.tell
        )

    async def tell(self, paths: Sequence[str]) -> None:
        self.told.append(paths)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_change_in_a_run_is_put_back_and_told(desk: Desk) -> None:
    async with desk.watch.running() as restored:
        desk.agents.write_text("mine")
    assert restored == ["AGENTS.md"]
    assert desk.told == [["AGENTS.md"]]
    assert desk.agents.read_text() == LOCKED


async def test_a_change_between_runs_is_the_owners(desk: Desk) -> None:
    async with desk.watch.running():
        pass
    desk.agents.write_text(LOCKED + "more")
    async with desk.watch.running() as restored:
        pass
    assert restored == []
    assert desk.agents.read_text() == LOCKED + "more"


async def test_while_a_process_lives_every_change_is_put_back(desk: Desk) -> None:
    async with desk.watch.running():
        for _ in range(2):
            desk.agents.write_text("mine")
            async with desk.watch.running() as restored:
                pass
            assert restored == ["AGENTS.md"]
    assert desk.agents.read_text() == LOCKED


async def test_a_call_beside_it_does_not_make_a_change_the_owners(desk: Desk) -> None:
    written, ended = asyncio.Event(), asyncio.Event()

    async def tampers() -> None:
        async with desk.watch.running():
            desk.agents.write_text("mine")
            written.set()
            await ended.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(tampers())
        await written.wait()
        async with desk.watch.running() as restored:
            pass
        ended.set()
    assert restored == ["AGENTS.md"]
    assert desk.agents.read_text() == LOCKED


async def test_a_run_that_is_cancelled_or_fails_is_checked_all_the_same(desk: Desk) -> None:
    written = asyncio.Event()

    async def tampers() -> None:
        async with desk.watch.running():
            desk.agents.write_text("mine")
            written.set()
            await asyncio.Event().wait()

    async def fails() -> None:
        async with desk.watch.running():
            desk.agents.write_text("mine")
            raise ZeroDivisionError

    run = asyncio.create_task(tampers())
    await written.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert desk.agents.read_text() == LOCKED
    with pytest.raises(ZeroDivisionError):
        await fails()
    assert desk.agents.read_text() == LOCKED
    desk.agents.write_text("the owner's")
    async with desk.watch.running():
        pass
    assert desk.agents.read_text() == "the owner's"


async def test_the_owner_edits_through_the_gateway_while_a_process_lives(desk: Desk) -> None:
    async with desk.watch.running() as restored:
        await desk.workspace.write("AGENTS.md", "no markers any more", Label.OWNER, unlocked=True)
        await desk.workspace.write("house.md", LOCKED, Label.OWNER, unlocked=True)
        assert await desk.watch.files() == ("house.md",)
        (desk.root / "house.md").write_text("mine")
    assert restored == ["house.md"]
    assert desk.agents.read_text() == "no markers any more"


async def test_the_jail_learns_of_every_locked_file(desk: Desk) -> None:
    (desk.root / "notes").mkdir()
    (desk.root / "notes/house.md").write_text(LOCKED)
    assert await desk.watch.files() == ("AGENTS.md", "notes/house.md")
