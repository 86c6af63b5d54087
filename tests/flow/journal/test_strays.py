"""What is written where it does not belong, or twice."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.flow.journal.desk import Desk, arrival, desk
from tests.flow.outage import AwayAtTimes


@pytest.fixture
async def away(dsn: str) -> AsyncIterator[AwayAtTimes]:
    async with await AwayAtTimes.connect(dsn) as database:
        yield database


@pytest.fixture
async def here(away: AwayAtTimes, tmp_path: Path) -> Desk:
    return await desk(away, tmp_path)


class TestStrays:
    async def test_a_message_written_elsewhere_while_the_database_was_away_is_put_right(
        self, here: Desk, away: AwayAtTimes
    ) -> None:
        session = await here.hear("one")
        await here.settled()
        again = await desk(here.database, here.workspace.parent)  # it does not remember the file
        away.away = True
        late = arrival("two")
        place = await again.write(late)
        assert place is not None
        await again.journal.sync(place)
        away.away = False
        assert len(here.files()) == 2
        assert await again.store(late, place) == session
        await again.settled()
        assert again.said(again.file) == [("message", "one"), ("user", "two")]
        await again.hear("three")
        assert len(again.said(again.file)) == 3

    async def test_the_owners_first_words_are_kept_while_the_database_is_away(
        self, here: Desk, away: AwayAtTimes
    ) -> None:
        away.away = True
        kept = [arrival("one"), arrival("two")]
        places = [await here.write(each) for each in kept]
        away.away = False
        for each, place in zip(kept, places, strict=True):
            await here.store(each, place)
        await here.settled()
        assert here.said(here.file) == [("message", "one"), ("message", "two")]

    @pytest.mark.parametrize("same", [True, False])
    async def test_what_comes_twice_is_in_the_file_once(self, here: Desk, same: bool) -> None:
        first = arrival("one", id="m-1")
        await here.take(first)
        await here.settled()
        size = here.file.stat().st_size
        await here.hear("one", id="m-1", entry=first.id if same else None)
        assert here.file.stat().st_size == 2 * size
        await here.journal.catch_up()
        await here.settled()
        assert here.said(here.file) == [("message", "one")]
        assert not (here.data / "journal" / "damaged").exists()

    async def test_what_is_ignored_leaves_nothing(self, here: Desk) -> None:
        ignored = arrival("uno", edits="m-0", id="e-1")
        place = await here.write(ignored)
        here.journal.stored(ignored, place, None)
        await here.settled()
        assert here.files() == []

    async def test_a_message_written_into_a_closed_file_goes_into_the_new_one(self, here: Desk) -> None:
        await here.hear("one")
        await here.settled()
        await here.new()
        late = arrival("two")
        place = await here.write(late)
        await here.settled()
        assert place is not None
        assert (place.root / place.path).exists(), "it holds something that is nowhere else"
        await here.store(late, place)
        await here.settled()
        assert here.said(here.file) == [("user", "two")]
        [filed] = here.files("memory")
        assert here.said(filed) == [("user", "one")]
