from pathlib import Path
from uuid import uuid4

import pytest

from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Role
from gateway.flow.journal import places as places_module
from gateway.flow.journal.places import Places
from gateway.store.pool import Database
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter
from tests.flow.journal.desk import Desk, arrival, desk


@pytest.fixture
async def here(database: Database, tmp_path: Path) -> Desk:
    return await desk(database, tmp_path)


@pytest.fixture
def places(here: Desk) -> Places:
    writer = JournalWriter(here.data / "keys" / "journal", here.data / "journal" / "damaged")
    return Places(here.database, here.people, writer, here.workspace, here.data / "principals")


async def test_the_owners_files_lie_in_the_workspace_and_anothers_under_their_id(here: Desk, places: Places) -> None:
    owner, other = here.people.owner.id, PrincipalId(uuid4())
    assert places.root_of(owner) == here.workspace
    assert places.root_of(other) == here.data / "principals" / str(other)
    for principal in (owner, other):
        assert places.owner_of(Place(places.root_of(principal), "x")) == principal


async def test_it_looks_through_the_roots_of_principals_and_nothing_else(here: Desk, places: Places) -> None:
    assert places.roots() == [here.workspace]
    others = here.data / "principals"
    (others / "notes").mkdir(parents=True)
    (others / str(uuid4())).symlink_to(here.workspace)
    (others / str(uuid4())).write_text("a file")
    member = others / str(uuid4())
    member.mkdir()
    assert places.roots() == [here.workspace, member]


async def test_a_new_conversation_stays_in_its_fresh_file(here: Desk, places: Places) -> None:
    first = await places.of(arrival("one"), Role.OWNER)
    second = await places.of(arrival("two"), Role.OWNER)
    assert first is not None
    assert second == first
    assert first.fresh
    places.bound(arrival("x").inbound.address, first)
    bound = await places.of(arrival("three"), Role.OWNER)
    assert bound == first
    assert not bound.fresh


async def test_a_file_that_is_closed_is_used_no_more(here: Desk, places: Places) -> None:
    first = await places.of(arrival("one"), Role.OWNER)
    assert first is not None
    places.forget(first)
    assert await places.of(arrival("two"), Role.OWNER) != first


async def test_those_not_used_for_long_are_looked_up_again(
    here: Desk, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places_module, "REMEMBERED", 1)
    await here.hear("one")
    known = await places.of(arrival("two"), Role.OWNER)
    assert known is not None
    assert (known.path, known.fresh) == (str(here.file.relative_to(here.workspace)), False)
    await places.of(arrival("elsewhere", thread="t"), Role.OWNER)
    assert await places.of(arrival("three"), Role.OWNER) == known
