import pytest

from gateway.flow.channels.monitoring import ChannelReports


class Owner:
    """Who is told, on a clock that a test moves."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.now = 0.0
        self.deaf = False
        self.reports = ChannelReports(self.tell, lambda: self.now)

    async def tell(self, text: str) -> None:
        if self.deaf:
            raise ConnectionError
        self.told.append(text)

    async def sees(self, state: str, seconds: float = 0.0) -> None:
        """The channel is in this state, and still is after so long."""
        await self.reports.look({"telegram": state})
        self.now += seconds
        await self.reports.look({"telegram": state})


@pytest.fixture
def owner() -> Owner:
    return Owner()


async def test_a_refusal_is_told_once_and_so_is_its_end(owner: Owner):
    await owner.sees("refused: the token was revoked", 10)
    assert owner.told == []
    await owner.sees("refused: the token was revoked", 3600)
    assert owner.told == ["telegram has stopped working; refused: the token was revoked"]
    await owner.sees("open", 59)
    assert len(owner.told) == 1
    await owner.sees("open", 1)
    assert owner.told[1:] == ["telegram works again."]
    await owner.sees("open", 3600)
    assert len(owner.told) == 2


async def test_a_short_outage_is_not_told(owner: Owner):
    for _ in range(3):
        await owner.sees("open", 60)
        await owner.sees("unreachable since 12:00 UTC: no route", 299)
    assert owner.told == []


async def test_a_long_outage_and_deafness_are(owner: Owner):
    await owner.sees("unreachable since 12:00 UTC: no route", 300)
    assert owner.told == ["telegram has stopped working; unreachable since 12:00 UTC: no route"]
    await owner.sees("open", 60)
    await owner.sees("deaf: nothing heard for 121 s; opening again", 150)
    await owner.sees("deaf: nothing heard since it was opened again", 150)
    assert owner.told[2:] == ["telegram has stopped working; deaf: nothing heard since it was opened again"]


async def test_programs_that_fight_over_a_bot_are_told_of_once(owner: Owner):
    for _ in range(20):
        await owner.sees("refused: another program uses this bot's token", 25)
        await owner.sees("open", 30)
    assert len(owner.told) == 1


async def test_one_that_waits_for_its_first_login_has_not_stopped(owner: Owner):
    await owner.sees("waiting", 100_000)
    assert owner.told == []
    await owner.sees("open", 60)
    await owner.sees("logged out: unlinked on the phone", 300)
    assert owner.told == ["telegram has stopped working; logged out: unlinked on the phone"]


async def test_one_that_was_removed_is_forgotten(owner: Owner):
    await owner.sees("refused: no", 20)
    await owner.reports.look({})
    await owner.sees("open", 60)
    assert len(owner.told) == 1


async def test_an_owner_who_cannot_be_told_stops_nothing(owner: Owner):
    owner.deaf = True
    await owner.sees("refused: no", 20)
    owner.deaf = False
    await owner.sees("open", 60)
    assert owner.told == ["telegram works again."]
