"""Where a person is told something unasked, and what saying it does."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.transcript import AssistantText, Notice
from gateway.domain.ids import AddressId, SessionId
from gateway.domain.principals import Label
from gateway.flow.live import MessageStored
from gateway.flow.outbound.proactive import HandedOver
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import sessions
from gateway.store.transcript.messages import MessageRow
from tests.flow.path import MEMBER, FakeModel, MessagePath, build, message
from tests.store.world import blocked

PHONE, DESK = Address("fake", "bot", "phone"), Address("fake", "bot", "desk")
GONE, WEB = Address("gone", "bot", "1"), Address("web", "owner", "main")
TERMINAL, API = Address("terminal", "local", "main"), Address("api", "owner", "x")


@pytest.fixture
async def path(database: Database, workspace: Path) -> MessagePath:
    path = await build(database, workspace, FakeModel())
    await path.people.learn(database, "Ada", {"gone": "1"})
    return path


async def hear(path: MessagePath, *spoken: Address) -> dict[Address, AddressId]:
    """The owner has written at these addresses, one after another."""
    for each in spoken:
        await path.inbound.accept([replace(message("hello"), address=each)])
    async with path.database.connection() as conn:
        found = [await addresses.find(conn, each) for each in spoken]
    return {row.address: row.id for row in found if row}


async def chosen(
    path: MessagePath, at: AddressId | None = None, channel: str | None = None, avoid: AddressId | None = None
) -> Address | None:
    async with path.database.transaction() as tx:
        found = await path.proactive.destination(tx, path.people.owner.id, address=at, channel=channel, avoid=avoid)
    return found.address if found else None


async def hand_over(tx: Connection, address: AddressId) -> None:
    """The member's from now on."""
    at = await tx.fetchrow("select principal_id, session_id from addresses where chat = $1", MEMBER)
    assert at is not None
    await addresses.hand_over(tx, address, at["principal_id"], at["session_id"])


async def say(
    path: MessagePath, entry: AssistantText | Notice, label: Label, at: AddressRow | None = None
) -> MessageRow:
    owner = path.people.owner.id
    async with path.database.transaction() as tx:
        there = at or await path.proactive.destination(tx, owner)
        assert there is not None
        return await path.proactive.say(tx, there, owner, entry, label=label, origin="schedule")


async def label(path: MessagePath, session: SessionId) -> Label:
    async with path.database.connection() as conn:
        return await sessions.label(conn, session)


class TestDestination:
    async def test_it_is_where_it_was_asked_for(self, path: MessagePath) -> None:
        known = await hear(path, PHONE, DESK, WEB)
        assert await chosen(path, known[PHONE]) == PHONE
        assert await chosen(path, known[WEB]) == WEB

    async def test_if_that_channel_is_gone_it_is_where_they_wrote_last(self, path: MessagePath) -> None:
        known = await hear(path, PHONE, DESK, GONE)
        assert await chosen(path, known[GONE]) == DESK

    async def test_on_the_named_channel_it_is_where_they_wrote_last_there(self, path: MessagePath) -> None:
        await hear(path, PHONE, WEB)
        assert await chosen(path, channel="fake") == PHONE
        assert await chosen(path, channel="gone") == WEB

    async def test_what_is_to_be_avoided_is_not_chosen_by_any_way(self, path: MessagePath) -> None:
        known = await hear(path, DESK, PHONE)
        assert await chosen(path, known[PHONE], avoid=known[PHONE]) == DESK
        assert await chosen(path, channel="fake", avoid=known[PHONE]) == DESK
        assert await chosen(path, avoid=known[PHONE]) == DESK

    @pytest.mark.parametrize("spoken", [[PHONE, TERMINAL], [WEB, TERMINAL, API]])
    async def test_nobody_waits_at_a_terminal_or_behind_the_api(
        self, path: MessagePath, spoken: Sequence[Address]
    ) -> None:
        known = await hear(path, *spoken)
        assert await chosen(path, known[TERMINAL]) == spoken[0]

    async def test_a_terminal_is_better_than_nothing_and_the_api_is_nothing(self, path: MessagePath) -> None:
        known = await hear(path, API)
        assert await chosen(path, known[API]) is None
        await hear(path, TERMINAL)
        assert await chosen(path, known[API]) == TERMINAL

    async def test_a_chat_that_was_handed_over_is_nobody_elses_any_more(self, path: MessagePath) -> None:
        known = await hear(path, DESK, PHONE)
        await path.tell("hello", chat=MEMBER, sender=MEMBER)
        async with path.database.transaction() as tx:
            await hand_over(tx, known[PHONE])
        assert await chosen(path, known[PHONE]) == DESK

    async def test_one_that_is_handed_over_meanwhile_is_not_taken(self, path: MessagePath) -> None:
        known = await hear(path, DESK, PHONE)
        await path.tell("hello", chat=MEMBER, sender=MEMBER)
        async with path.database.transaction() as tx:
            await addresses.lock_by_id(tx, known[PHONE])
            choice = await blocked(path.database, chosen(path, known[PHONE]))
            await hand_over(tx, known[PHONE])
        assert await choice == DESK


class TestSaying:
    async def test_the_agents_words_are_part_of_the_conversation_and_end_no_turn(self, path: MessagePath) -> None:
        await hear(path, PHONE)
        row = await say(path, AssistantText("Stretch!"), Label.UNTRUSTED)
        assert (row.kind, row.final, row.origin, row.label) == ("assistant", False, "schedule", Label.UNTRUSTED)
        assert await label(path, row.session_id) == Label.UNTRUSTED
        assert await path.rows("select text from outbox") == [("Stretch!",)]

    async def test_a_notice_taints_nothing_for_no_model_reads_it(self, path: MessagePath) -> None:
        await hear(path, PHONE)
        row = await say(path, Notice("It failed."), Label.UNTRUSTED)
        assert await label(path, row.session_id) == Label.OWNER

    async def test_it_is_said_in_the_session_that_is_current_by_then(self, path: MessagePath) -> None:
        known = await hear(path, PHONE)
        async with path.database.connection() as conn:
            stale = await addresses.get(conn, known[PHONE])
        async with path.working():
            await path.ask("/new", chat="phone")
        row = await say(path, AssistantText("Stretch!"), Label.OWNER, stale)
        assert row.session_id != stale.session_id

    async def test_a_chat_of_somebody_else_is_left_alone(self, path: MessagePath) -> None:
        known = await hear(path, PHONE)
        async with path.database.connection() as conn:
            mine = await addresses.get(conn, known[PHONE])
        await path.tell("hello", chat=MEMBER, sender=MEMBER)
        async with path.database.transaction() as tx:
            await hand_over(tx, known[PHONE])
        with pytest.raises(HandedOver):
            await say(path, AssistantText("Stretch!"), Label.OWNER, mine)
        assert await path.rows("select count(*) from outbox") == [(0,)]

    async def test_telling_is_all_of_it_and_shown_at_once(self, path: MessagePath) -> None:
        accepted = await path.tell("hello")
        assert accepted.session_id is not None
        with path.live.subscribe(accepted.session_id) as events:
            owner = path.people.owner.id
            row = await path.proactive.notify(owner, Notice("Hi."))
            assert row is not None
            assert events.ready() == [MessageStored(row.id)]

    async def test_who_has_no_chat_is_told_nothing(self, path: MessagePath) -> None:
        told = await path.proactive.notify(path.people.owner.id, Notice("Hi."))
        assert told is None


async def test_the_owner_is_told_where_the_owner_wrote_last(path: MessagePath) -> None:
    await path.say("hello")
    here = await path.tell("hello", chat="phone")
    await path.say("hello", chat=MEMBER, sender=MEMBER)
    await path.say("hello", chat="g", private=False)
    assert here.session_id is not None
    with path.live.subscribe(here.session_id) as events:
        await path.notices.tell_owner("config.json wasn't applied.")
        [stored] = events.ready()
    assert isinstance(stored, MessageStored)
    assert await path.rows("select kind, text from messages where id = $1", stored.id) == [
        ("notice", "config.json wasn't applied.")
    ]
    async with path.working():
        await path.channel.until(lambda texts: "config.json wasn't applied." in texts)
    [shown] = [m for m in path.channel.shown if m.text.startswith("config")]
    assert shown.address.chat == "phone"


async def test_an_owner_who_never_wrote_is_told_by_the_log_alone(path: MessagePath) -> None:
    await path.say("hello", chat=MEMBER, sender=MEMBER)
    await path.notices.tell_owner("config.json wasn't applied.")
    assert await path.rows("select count(*) from messages where kind = 'notice'") == [(0,)]


async def test_a_notice_is_no_reason_for_a_turn(path: MessagePath) -> None:
    async with path.working():
        await path.ask("hello")
        await path.notices.tell_owner("something")
        await path.ask("again")
    assert "something" not in repr(path.model.prompts[1])
