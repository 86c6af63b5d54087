from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.slack.facts import MAX_FACTS, CachedFacts
from gateway.domain.conversation.inbound import Address
from gateway.domain.errors import TryAgainLater
from gateway.store.connection.pool import Database
from gateway.store.delivery.addresses import StoredFacts
from tests.contract.slack import slack_on
from tests.fakes.facts import FactsInFile
from tests.fakes.log import Log
from tests.fakes.slack import FakeSlack

THREAD = Address("slack", "T1", "D7", "1.5")


@pytest.fixture
async def platform() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as platform:
        yield platform


async def kept(database: Database, log: Log | None = None, channel: str = "slack") -> CachedFacts:
    found = CachedFacts(StoredFacts(database, channel), log or Log())
    await found.load()
    return found


async def test_what_is_kept_is_on_every_machine_and_what_is_dropped_is_on_none(database: Database) -> None:
    first = await kept(database)
    await first.put("a", "1")
    await first.note("b", "2")
    await first.put("b", "3")
    await first.drop("a")
    second = await kept(database)
    assert (second.get("a"), second.get("b")) == (None, "3")
    assert (await kept(database, channel="other")).get("b") is None


async def test_what_made_room_is_gone_from_the_database_too(database: Database) -> None:
    await StoredFacts(database, "slack").save({f"old {number}": "" for number in range(MAX_FACTS)})
    found = await kept(database)
    await found.note("old 0", "again")
    await found.note("new", "1")
    again = await kept(database)
    assert [again.get(name) for name in ("old 0", "old 1", "old 2", "new")] == ["again", None, "", "1"]


async def test_without_the_database_a_note_waits_and_what_must_not_be_forgotten_is_refused(tmp_path: Path) -> None:
    facts, log = FactsInFile(tmp_path / "facts.json"), Log()
    found = CachedFacts(facts, log)
    await found.put("first", "1")
    facts.down = True
    await found.note("noted", "1")
    await found.drop("first")
    with pytest.raises(TryAgainLater):
        await found.put("second", "1")
    assert (found.get("noted"), found.get("first"), found.get("second")) == ("1", None, None)
    assert len(log.named("slack.not_kept")) == 2

    facts.down = False
    await found.put("third", "1")
    assert await facts.load() == {"noted": "1", "third": "1"}


async def test_nothing_grows_that_could_not_be_found_again_after_a_crash(platform: FakeSlack, tmp_path: Path) -> None:
    facts = FactsInFile(tmp_path / "facts.json")
    platform.messages["D7"] = [{"ts": "1.5", "user": "77", "text": "root"}]
    channel = slack_on(platform, Log(), tmp_path, facts=facts)
    await channel.open()
    facts.down = True
    assert not await channel.draft(THREAD, 1, "It is")
    facts.down = False
    assert await channel.draft(THREAD, 1, "It is growing")
    await channel.close()
    assert f"stream {THREAD.chat} {THREAD.thread}" in await facts.load()


async def test_an_address_to_answer_at_is_stored_sealed(platform: FakeSlack, tmp_path: Path) -> None:
    at, channel = Address("slack", "T1", "C1"), slack_on(platform, Log(), tmp_path)
    await channel._replies.remember_url(at, "https://hooks.slack.com/secret")
    assert channel._replies._address(at) == "https://hooks.slack.com/secret"
    assert "secret" not in (tmp_path / "facts.json").read_text()
    channel._replies._bot_token = "xoxb-another"
    assert channel._replies._address(at) is None
