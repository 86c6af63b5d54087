"""What was committed is sent: in order, retried, receipted, never blindly repeated."""

import asyncio
from typing import Any

import pytest

from gateway.domain.channels.channel import Capabilities, SendDelayed, SendFailed, SendUncertain
from gateway.flow.outbound import delivery as attempt_module
from gateway.flow.outbound.delivery import INTERRUPTED, TRIES, UNCONFIRMED
from gateway.store.connection.pool import Database
from gateway.store.delivery import outbox
from tests.fakes.channel import FakeChannel
from tests.flow.path import MEMBER, FakeModel, MessagePath, build, in_turn, restarted, said

STATES = "select text, state from outbox order by id"
SURE = Capabilities(max_text=4096, idempotent_send=True)


async def unsent(path: MessagePath, *texts: str) -> None:
    """Answers that are committed and not yet sent."""
    for text in texts:
        path.model.answer = in_turn(said(text))
        await path.tell("go")
        await path.turns.run(await path.claim())


async def sending(path: MessagePath) -> "asyncio.Task[None]":
    return asyncio.create_task(path.outbound.run())


async def stop(running: "asyncio.Task[None]") -> None:
    running.cancel()
    await asyncio.wait([running])


async def sent(path: MessagePath, *, count: int) -> list[str]:
    """Send until so much was shown and nothing is left."""
    running = await sending(path)
    try:
        texts = await path.channel.until(lambda shown: len(shown) >= count)
        await path.outbound.drain(5)
    finally:
        await stop(running)
    return texts


class TestParts:
    async def test_a_long_answer_is_sent_in_parts_in_order(self, path: MessagePath) -> None:
        paragraphs = [f"{n}: " + "word " * 700 for n in range(4)]
        await unsent(path, "\n\n".join(paragraphs))
        parts = await path.rows("select part, text from outbox order by id")
        assert [part for part, _ in parts] == list(range(len(parts)))
        assert len(parts) > 1
        assert await sent(path, count=len(parts)) == [text for _, text in parts]
        assert [row[1] for row in await path.rows(STATES)] == ["sent"] * len(parts)
        assert [o.key for o in path.channel.shown] == [f"supaclaw-{n}" for n in range(1, len(parts) + 1)]

    async def test_a_receipt_keeps_the_platforms_id(self, path: MessagePath) -> None:
        await unsent(path, "hello")
        await sent(path, count=1)
        assert await path.rows("select platform_id, attempts, sent_at is not null from outbox") == [("p1", 1, True)]


class TestDelays:
    async def test_the_platforms_wish_is_respected(self, path: MessagePath) -> None:
        path.channel.faults = [SendDelayed("flood", retry_after=77)]
        await unsent(path, "hello", "again")
        running = await sending(path)
        await path.channel.until_asked(1)
        await path.outbound.drain(5)
        [(seconds, state), _] = await path.rows(
            "select extract(epoch from run_at - sending_at)::int, state from outbox order by id"
        )
        assert 77 <= seconds <= 87
        assert (state, path.channel.texts, path.channel.asked) == ("pending", [], 1)
        await path.rows("update outbox set run_at = now() returning id")
        path.signals.outbox.set()
        assert await path.channel.until(lambda texts: len(texts) == 2) == ["hello", "again"]
        await stop(running)

    async def test_a_restart_does_not_cut_the_wait_short(self, path: MessagePath) -> None:
        path.channel.faults = [SendDelayed("flood", retry_after=77)]
        await unsent(path, "hello")
        running = await sending(path)
        await path.channel.until_asked(1)
        await path.outbound.drain(5)
        await stop(running)
        again = await restarted(path)
        running = await sending(again)
        await again.outbound.drain(5)
        await stop(running)
        assert (again.channel.asked, await path.rows(STATES)) == (0, [("hello", "pending")])

    async def test_one_slow_chat_holds_up_no_other(self, path: MessagePath) -> None:
        path.channel.faults = [SendDelayed("flood", retry_after=77)]
        await unsent(path, "hello", "again")
        running = await sending(path)
        await path.channel.until_asked(1)
        await path.tell("/ping", chat="2")
        path.signals.outbox.set()
        [pong] = await path.channel.until(bool)
        await path.outbound.drain(5)
        await stop(running)
        assert (pong.startswith("pong"), len(path.channel.shown)) == (True, 1)

    async def test_an_outage_waits_longer_each_time_and_loses_nothing(self, path: MessagePath) -> None:
        path.channel.faults = [SendDelayed("down") for _ in range(9)]
        await unsent(path, "hello")
        waits = []
        running = await sending(path)
        for tries in range(1, 10):
            await path.channel.until_asked(tries)
            await path.outbound.drain(5)
            [(seconds,)] = await path.rows("select extract(epoch from run_at - sending_at)::int from outbox")
            waits.append(seconds)
            await path.rows("update outbox set run_at = now() returning id")
            path.signals.outbox.set()
        assert await path.channel.until(bool) == ["hello"]
        await stop(running)
        for wait, least in zip(waits, [1, 3, 7, 15, 31, 31, 31, 31, 31], strict=True):
            assert least <= wait <= least + 10


class TestRefusals:
    async def test_a_refused_message_is_a_dead_letter_and_later_ones_go(self, path: MessagePath) -> None:
        path.channel.faults = [SendFailed("bot was blocked")]
        await unsent(path, "word " * 2000, "later")
        parts = len(await path.rows(STATES)) - 1
        assert parts > 1
        assert await sent(path, count=1) == ["later"]
        assert [state for _, state in await path.rows(STATES)] == ["failed"] * parts + ["sent"]
        assert path.channel.asked == 2
        assert await path.rows("select distinct error from outbox where state = 'failed'") == [("bot was blocked",)]

    async def test_whatever_the_platform_says_can_be_kept(self, path: MessagePath) -> None:
        path.channel.faults = [SendDelayed("\x00 \ud800"), SendFailed("\x00 \ud800"), SendUncertain("\x00 \ud800")]
        await unsent(path, "refused", "doubtful", "later")
        running = await sending(path)
        await path.channel.until_asked(1)
        await path.outbound.drain(5)
        await path.rows("update outbox set run_at = now() returning id")
        path.signals.outbox.set()
        assert (await path.channel.until(bool))[0] == "later"
        await stop(running)
        assert await path.rows("select error from outbox where error is not null") == [(" ?",), (" ?",)]


class TestDoubts:
    async def test_a_send_that_hangs_gives_up_its_lane(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(attempt_module, "SEND_WITHIN", 0.05)
        path.channel.gates["1"] = asyncio.Event()
        await unsent(path, "hello")
        running = await sending(path)
        await path.channel.until_asked(1)
        path.channel.gates.clear()
        assert await path.channel.until(bool) == [UNCONFIRMED]
        await path.outbound.drain(5)
        await stop(running)
        assert await path.rows(STATES) == [("hello", "uncertain"), (UNCONFIRMED, "sent")]

    async def test_a_send_that_may_have_happened_is_not_repeated_and_told_of_once(self, path: MessagePath) -> None:
        path.channel.faults = [SendUncertain("no answer")]
        await unsent(path, "hello", "later")
        assert await sent(path, count=2) == ["later", UNCONFIRMED]
        assert await path.rows(STATES) == [("hello", "uncertain"), ("later", "sent"), (UNCONFIRMED, "sent")]

    async def test_two_doubtful_parts_of_one_answer_are_one_doubt(self, path: MessagePath) -> None:
        path.channel.faults = [SendUncertain("no answer"), SendUncertain("no answer")]
        await unsent(path, "word " * 2000)
        parts = len(await path.rows(STATES))
        texts = await sent(path, count=parts - 2 + 1)
        assert texts[-1] == UNCONFIRMED
        assert texts.count(UNCONFIRMED) == 1
        assert [state for _, state in await path.rows(STATES)] == ["uncertain"] * 2 + ["sent"] * (parts - 2 + 1)

    async def test_a_doubtful_notice_is_sent_again_for_a_doubt_may_not_be_hidden(self, path: MessagePath) -> None:
        path.channel.faults = [SendUncertain("no answer") for _ in range(12)]
        await unsent(path, "hello")
        running = await sending(path)
        for tries in range(2, 13):
            await path.channel.until_asked(tries)
            await path.outbound.drain(5)
            await path.rows("update outbox set run_at = now() returning id")
            path.signals.outbox.set()
        assert await path.channel.until(bool) == [UNCONFIRMED]
        await path.outbound.drain(5)
        await stop(running)
        assert await path.rows(STATES) == [("hello", "uncertain"), (UNCONFIRMED, "sent")]

    async def test_not_if_a_defect_keeps_it_from_being_sent_and_it_gets_no_notice_of_its_own(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(attempt_module, "TRIES", 1)
        path.channel.faults = [SendUncertain("no answer"), ZeroDivisionError()]
        await unsent(path, "hello")
        running = await sending(path)
        await path.channel.until_asked(2)
        await path.outbound.drain(5)
        await stop(running)
        assert await path.rows(STATES) == [("hello", "uncertain"), (UNCONFIRMED, "uncertain")]

    async def test_an_error_nobody_foresaw_is_a_doubt_too(self, path: MessagePath) -> None:
        path.channel.faults = [ZeroDivisionError()]
        await unsent(path, "hello")
        assert await sent(path, count=1) == [UNCONFIRMED]
        assert await path.rows("select error from outbox where state = 'uncertain'") == [("ZeroDivisionError: ",)]

    async def test_where_sending_twice_is_harmless_it_is_sent_again(
        self, database: Database, path: MessagePath
    ) -> None:
        channel = FakeChannel(capabilities=SURE, faults=[SendUncertain("no answer")])
        path = await build(database, path.workspace, FakeModel(), channel=channel)
        await unsent(path, "hello")
        running = await sending(path)
        await channel.until_asked(1)
        await path.outbound.drain(5)
        await path.rows("update outbox set run_at = now() returning id")
        path.signals.outbox.set()
        assert await channel.until(bool) == ["hello"]
        await stop(running)
        assert {message.key for message in channel.shown} == {"supaclaw-1"}

    async def test_but_that_ends_too(
        self, database: Database, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(attempt_module, "TRIES", 1)
        channel = FakeChannel(capabilities=SURE, faults=[ZeroDivisionError()])
        path = await build(database, path.workspace, FakeModel(), channel=channel)
        await unsent(path, "hello")
        assert await sent(path, count=1) == [UNCONFIRMED]

    async def test_what_nobody_will_ever_know_is_a_doubt_at_once(self, database: Database, path: MessagePath) -> None:
        channel = FakeChannel(capabilities=SURE, faults=[SendUncertain("no look", lasting=True)])
        path = await build(database, path.workspace, FakeModel(), channel=channel)
        await unsent(path, "hello")
        assert await sent(path, count=1) == [UNCONFIRMED]

    @pytest.mark.parametrize("sure", [True, False])
    async def test_only_what_may_have_been_shown_is_looked_for_again(
        self, database: Database, path: MessagePath, sure: bool
    ) -> None:
        first = SendDelayed("flood") if sure else SendUncertain("no answer")
        channel = FakeChannel(capabilities=SURE, faults=[first, SendDelayed("flood")])
        path = await build(database, path.workspace, FakeModel(), channel=channel)
        await unsent(path, "hello")
        running = await sending(path)
        for tries in (1, 2):
            await channel.until_asked(tries)
            await path.outbound.drain(5)
            await path.rows("update outbox set run_at = now() returning id")
            path.signals.outbox.set()
        assert await channel.until(bool) == ["hello"]
        await stop(running)
        assert channel.shown[0].again is not sure


class TestRestarts:
    async def half_sent(self, path: MessagePath) -> None:
        """A gateway that died between the request and the receipt."""
        path.channel.gates["1"] = asyncio.Event()
        await unsent(path, "hello")
        running = await sending(path)
        await path.channel.until_asked(1)
        await stop(running)
        assert await path.rows(STATES) == [("hello", "sending")]

    async def test_what_was_being_sent_is_doubtful_and_not_sent_again(self, path: MessagePath) -> None:
        await self.half_sent(path)
        again = await restarted(path)
        assert await sent(again, count=1) == [INTERRUPTED]
        assert await path.rows(STATES) == [("hello", "uncertain"), (INTERRUPTED, "sent")]
        once_more = await restarted(again)
        await unsent(once_more, "later")
        assert await sent(once_more, count=1) == ["later"]

    @pytest.mark.parametrize("kills", [1, TRIES])
    async def test_killed_while_it_says_so_it_says_so_again(self, path: MessagePath, kills: int) -> None:
        await self.half_sent(path)
        for _ in range(kills):
            path = await restarted(path)
            path.channel.gates["1"] = asyncio.Event()
            running = await sending(path)
            await path.channel.until_asked(1)
            await stop(running)
            assert await path.rows(STATES) == [("hello", "uncertain"), (INTERRUPTED, "sending")]
        again = await restarted(path)
        await unsent(again, "later")
        assert await sent(again, count=2) == [INTERRUPTED, "later"]

    async def test_a_look_at_it_that_broke_off_is_taken_up_again(
        self, database: Database, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.half_sent(path)
        again = await build(database, path.workspace, FakeModel(), path.instance, adopt=False)

        async def broken(*_: object) -> None:
            raise asyncio.CancelledError

        with monkeypatch.context() as patched:
            patched.setattr(attempt_module.Delivery, "resume", broken)
            with pytest.raises(asyncio.CancelledError):
                await again.outbound.adopt("fake", again.channel)
        await again.outbound.adopt("fake", again.channel)
        assert await sent(again, count=1) == [INTERRUPTED]

    async def test_the_chat_goes_on(self, path: MessagePath) -> None:
        await self.half_sent(path)
        again = await restarted(path)
        await unsent(again, "later")
        assert await sent(again, count=2) == [INTERRUPTED, "later"]

    async def test_an_idempotent_channel_sends_it_again_at_once(self, path: MessagePath) -> None:
        await self.half_sent(path)
        channel = FakeChannel(capabilities=SURE)
        again = await build(path.database, path.workspace, FakeModel(), path.instance, channel=channel)
        assert await sent(again, count=1) == ["hello"]
        assert await path.rows(STATES) == [("hello", "sent")]

    async def test_what_had_not_begun_is_simply_sent(self, path: MessagePath) -> None:
        await unsent(path, "hello")
        assert await sent(await restarted(path), count=1) == ["hello"]

    async def test_only_the_first_door_after_a_start_looks_for_what_a_crash_left(self, path: MessagePath) -> None:
        path.channel.gates["1"] = asyncio.Event()
        await unsent(path, "hello")
        running = await sending(path)
        await path.channel.until_asked(1)
        path.outbound.abandon("fake")
        await path.outbound.adopt("fake", FakeChannel())
        path.channel.gates["1"].set()
        assert await path.channel.until(bool) == ["hello"]
        await path.outbound.drain(5)
        await stop(running)
        assert await path.rows(STATES) == [("hello", "sent")]


class TestChannels:
    async def test_a_shut_channels_messages_wait_for_it(self, database: Database, path: MessagePath) -> None:
        path = await build(database, path.workspace, FakeModel(), adopt=False)
        await unsent(path, "word " * 2000)
        parts = await path.rows(STATES)
        assert len(parts) == 3
        running = await sending(path)
        await path.outbound.drain(5)
        assert path.channel.asked == 0
        await path.outbound.adopt("fake", path.channel)
        assert await path.channel.until(lambda texts: len(texts) == 3) == [text for text, _ in parts]
        await stop(running)

    async def test_a_channel_shut_at_the_last_moment_leaves_its_message_waiting(self, path: MessagePath) -> None:
        await unsent(path, "hello")
        path.outbound.abandon("fake")
        path.outbound.abandon("fake")
        running = await sending(path)
        await path.outbound.drain(5)
        await stop(running)
        assert await path.rows(STATES) == [("hello", "pending")]


async def test_a_slow_chat_delays_no_other(path: MessagePath) -> None:
    path.channel.gates[MEMBER] = asyncio.Event()
    async with path.working():
        await path.tell("slow", chat=MEMBER, sender=MEMBER)
        await path.channel.until_asked(1)
        for n in range(3):
            await path.ask(f"quick {n}")
        assert await path.channel.until(lambda texts: len(texts) == 3) == [f"re: quick {n}" for n in range(3)]
        path.channel.gates[MEMBER].set()
        await path.channel.until(lambda texts: len(texts) == 4)


async def test_draining_gives_up_in_the_end(path: MessagePath) -> None:
    path.channel.gates["1"] = asyncio.Event()
    await unsent(path, "hello")
    running = await sending(path)
    await path.channel.until_asked(1)
    await path.outbound.drain(0.01)
    assert path.channel.texts == []
    await stop(running)


async def test_two_senders_on_one_database_send_everything_once(path: MessagePath) -> None:
    other = await build(path.database, path.workspace, FakeModel())
    await unsent(path, *(f"answer {n}" for n in range(10)))
    both = [await sending(path), await sending(other)]
    async with asyncio.timeout(10):
        while (left := await path.rows("select count(*) from outbox where state <> 'sent'")) != [(0,)]:
            path.signals.outbox.set()
            other.signals.outbox.set()
            assert left
    for each in both:
        await stop(each)
    assert sorted(path.channel.texts + other.channel.texts) == sorted(f"answer {n}" for n in range(10))


async def test_what_is_committed_during_a_look_is_drained_as_well(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, committed = outbox.due, list[bool]()

    async def overtaken(*args: Any) -> list[outbox.OutboxRow]:
        found = await look(*args)
        if not committed:
            await path.turns.run(await path.claim())
            committed.append(True)
        return found

    monkeypatch.setattr(outbox, "due", overtaken)
    await path.tell("hello")
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(path.outbound.run())
        await path.outbound.drain(5)
        sending.cancel()
    assert path.channel.texts == ["re: hello"]
