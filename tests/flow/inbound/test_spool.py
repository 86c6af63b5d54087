"""The database goes away: what arrives is kept on disk, acknowledged, and stored in order when it is back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.domain.channels.routing import Ignore
from gateway.domain.errors import TryAgainLater
from gateway.flow.inbound import spool as spool_module
from gateway.flow.inbound.spool import SAVED_NOTICE
from tests.flow.inbound.test_quarantine import poisoned
from tests.flow.outage import AwayAtTimes
from tests.flow.path import MEMBER, OWNER, FakeModel, MessagePath, build, message, restarted

TEXTS = "select text from messages where kind = 'user' order by id"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(spool_module, "NOTICE_AFTER_SECONDS", 0.01)


@pytest.fixture
async def away(dsn: str) -> AsyncIterator[AwayAtTimes]:
    async with await AwayAtTimes.connect(dsn) as database:
        yield database


@pytest.fixture
async def path(away: AwayAtTimes, workspace: Path, model: FakeModel) -> MessagePath:
    return await build(away, workspace, model)


async def everything(path: MessagePath) -> str:
    return "".join(file.read_text() for file in sorted(path.workspace.rglob("sessions/**/*.md")))


class TestAway:
    async def test_a_message_is_acknowledged_kept_and_answered_later(
        self, path: MessagePath, away: AwayAtTimes
    ) -> None:
        async with path.working():
            await path.ask("before")
            away.away = True
            accepted = await path.tell("during")
            assert accepted.message_id is None
            assert "during" in await everything(path)
            away.away = False
            assert (await path.answer(await accepted.stored())).text == "re: during"
        assert await path.rows(TEXTS) == [("before",), ("during",)]

    async def test_the_first_words_of_the_owner_are_kept_as_well(self, path: MessagePath, away: AwayAtTimes) -> None:
        away.away = True
        accepted = await path.tell("hello")
        async with path.working():
            away.away = False
            assert (await path.answer(await accepted.stored())).text == "re: hello"

    async def test_order_is_kept_when_it_comes_back_in_between(self, path: MessagePath, away: AwayAtTimes) -> None:
        await path.tell("m0")
        away.away = True
        kept = [await path.tell("m1"), await path.tell("m2")]
        away.away = False
        kept.append(await path.tell("m3"))
        async with path.working():
            await asyncio.gather(*(accepted.stored() for accepted in kept))
        assert await path.rows(TEXTS) == [("m0",), ("m1",), ("m2",), ("m3",)]

    async def test_what_waits_is_stored_before_another_gateway_is_left_alone_with_it(
        self, path: MessagePath, away: AwayAtTimes
    ) -> None:
        away.away = True
        for text in ("m1", "m2"):
            await path.tell(text)
        async with path.working():
            await path.inbound.spool.drain(0.01)
            away.away = False
            await path.inbound.spool.drain(30)
            assert await path.rows(TEXTS) == [("m1",), ("m2",)]
            await path.inbound.spool.drain(30)

    async def test_what_comes_twice_meanwhile_is_stored_once(self, path: MessagePath, away: AwayAtTimes) -> None:
        away.away = True
        twins = [await path.tell("twin", id="m-twin") for _ in range(3)]
        away.away = False
        async with path.working():
            await asyncio.gather(*(twin.stored() for twin in twins))
        assert [twin.duplicate for twin in twins] == [False, True, True]
        assert await path.rows(TEXTS) == [("twin",)]

    async def test_a_command_takes_effect_when_it_is_back(self, path: MessagePath, away: AwayAtTimes) -> None:
        await path.tell("hello")
        away.away = True
        accepted = await path.tell("/ping")
        away.away = False
        async with path.working():
            assert (await path.answer(await accepted.stored())).text.startswith("pong")

    async def test_the_chat_is_told_once(self, path: MessagePath, away: AwayAtTimes) -> None:
        async with path.working():
            await path.ask("before")
            away.away = True
            kept = [await path.tell("one"), await path.tell("two")]
            await path.channel.until(lambda texts: SAVED_NOTICE in texts)
            away.away = False
            await asyncio.gather(*(accepted.stored() for accepted in kept))
        assert path.channel.texts.count(SAVED_NOTICE) == 1

    async def test_who_has_no_file_yet_is_not_acknowledged(self, path: MessagePath, away: AwayAtTimes) -> None:
        away.away = True
        with pytest.raises(TryAgainLater):
            await path.tell("hello", chat=MEMBER, sender=MEMBER)
        away.away = False
        assert await path.rows(TEXTS) == []

    async def test_it_takes_no_more_than_it_can_hold(
        self, path: MessagePath, away: AwayAtTimes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spool_module, "MAX_SPOOLED", 1)
        away.away = True
        await path.tell("one")
        with pytest.raises(TryAgainLater, match="is unavailable"):
            await path.tell("two")

    async def test_a_disk_that_refuses_is_no_acknowledgement(self, path: MessagePath, away: AwayAtTimes) -> None:
        (path.workspace / "sessions").write_text("in the way")
        away.away = True
        with pytest.raises(TryAgainLater):
            await path.tell("hello")

    async def test_who_waits_for_an_answer_that_cannot_be_stored_is_told(
        self, path: MessagePath, away: AwayAtTimes, model: FakeModel
    ) -> None:
        model.gate = asyncio.Event()
        async with path.working():
            accepted = await path.tell("hello")
            await model.called.wait()
            away.away = True
            model.gate.set()
            await path.channel.until(lambda texts: SAVED_NOTICE in texts)
            away.away = False
            assert (await path.answer(accepted)).text == "re: hello"
        assert path.channel.texts.count(SAVED_NOTICE) == 1

    async def test_what_cannot_be_stored_is_put_aside_and_holds_up_nobody(
        self, path: MessagePath, away: AwayAtTimes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        away.away = True
        poison, after = await path.tell("poison"), await path.tell("after it")
        poisoned(monkeypatch, ValueError("no such thing"))
        away.away = False
        async with path.working():
            assert (await poison.stored()).decision == Ignore("quarantined")
            assert (await path.answer(await after.stored())).text == "re: after it"
        assert await path.rows(TEXTS) == [("after it",)]

    async def test_a_database_that_answers_again_before_anybody_noticed_is_no_outage(
        self, path: MessagePath, away: AwayAtTimes
    ) -> None:
        async with path.working():
            accepted = await path.tell("hello")
            path.outages.note(message("hello").address, private=True)
            await path.answer(accepted)
            await path.channel.until(bool)
            await path.tell("/ping")
            await path.channel.until(lambda texts: len(texts) == 2)
        assert SAVED_NOTICE not in path.channel.texts


class TestCrash:
    async def test_what_was_only_in_the_journal_is_stored_by_the_next_start(
        self, path: MessagePath, away: AwayAtTimes
    ) -> None:
        await path.tell("before")
        away.away = True
        await path.inbound.accept([message("one", id="m-1"), message("two", id="m-2")])
        away.away = False
        again = await restarted(path)
        await again.inbound.restore(await again.journal.unstored())
        again.journal.check.begun(again.inbound.restore)
        await again.journal.check.put_right()
        assert await again.rows(TEXTS) == [("before",), ("one",), ("two",)]
        assert (await again.tell("one", id="m-1")).duplicate
        assert await again.journal.unstored() == []

    async def test_an_outage_in_the_middle_of_that_holds_up_no_start(
        self, path: MessagePath, away: AwayAtTimes
    ) -> None:
        await path.tell("before")
        away.away = True
        await path.inbound.accept([message("one", id="m-1"), message("two", id="m-2")])
        away.away = False
        again = await restarted(path)
        found = await again.journal.unstored()
        away.away = True
        await again.inbound.restore(found)
        later = await again.tell("three")
        async with again.working():
            away.away = False
            await later.stored()
        assert await again.rows(TEXTS) == [("before",), ("one",), ("two",), ("three",)]

    async def test_a_workspace_that_is_full_stops_no_chat(self, path: MessagePath) -> None:
        (path.workspace / "sessions").write_text("in the way")
        async with path.working():
            assert await path.ask("hello", chat=OWNER) == "re: hello"
