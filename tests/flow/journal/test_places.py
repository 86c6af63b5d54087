from pathlib import Path
from uuid import uuid4

import pytest

from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Role
from gateway.flow.journal import places as places_module
from gateway.flow.journal.places import Places
from gateway.store.connection.pool import Database
from gateway.store.transcript import journals
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter
from tests.flow.journal.desk import MEMBER, OWNER, Desk, arrival, desk


@pytest.fixture
async def here(database: Database, tmp_path: Path) -> Desk:
    return await desk(database, tmp_path)


@pytest.fixture
def places(here: Desk) -> Places:
    writer = JournalWriter(here.data / "keys" / "journal", here.data / "journal" / "damaged")
    return Places(here.database, here.people, writer, here.workspace, here.data / "principals")


async def test_the_owners_files_lie_in_the_workspace_and_anothers_under_their_id(here: Desk, places: Places) -> None:
    other = PrincipalId(uuid4())
    assert places.root_of(here.people.owner.id) == here.workspace
    assert places.root_of(other) == here.data / "principals" / str(other)


async def test_a_file_tells_its_journal(here: Desk, places: Places) -> None:
    for chat in (OWNER, MEMBER):
        session = await here.hear("hello", chat=chat)
        await here.settled()
        async with here.database.connection() as conn:
            journal = await journals.open_for(conn, session)
        assert journal is not None
        place = places.place_of(journal)
        assert (place.root / place.path).exists()
        assert await places.journal_at(place) == journal
        assert await places.journal_at(Place(place.root, "sessions/x.md")) is None


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
    assert places.fresh == {first}


async def test_a_file_that_is_closed_is_used_no_more(here: Desk, places: Places) -> None:
    first = await places.of(arrival("one"), Role.OWNER)
    assert first is not None
    places.forget(first)
    assert not places.fresh
    assert await places.of(arrival("two"), Role.OWNER) != first


async def test_those_not_used_for_long_are_looked_up_again(
    here: Desk, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places_module, "REMEMBERED", 1)
    await here.hear("one")
    known = await places.of(arrival("two"), Role.OWNER)
    assert known is not None
    assert (known.path, places.fresh) == (str(here.file.relative_to(here.workspace)), set())
    await places.of(arrival("elsewhere", thread="t"), Role.OWNER)
    assert await places.of(arrival("three"), Role.OWNER) == known
