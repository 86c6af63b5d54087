"""Accounts of one person, joined into one conversation and parted again."""

import asyncio
import re
from dataclasses import replace

import pytest

from gateway.domain.conversation.inbound import Address, Inbound
from gateway.domain.conversation.transcript import Notice
from gateway.domain.errors import OwnerMustAct
from gateway.domain.people.access import Access
from gateway.domain.people.credentials import new_code
from gateway.domain.principals import Role
from gateway.flow.inbound.gate import Gate
from gateway.flow.people import Pairing
from tests.fakes.channel import FakeChannel
from tests.fakes.eventually import eventually
from tests.flow.path import MEMBER, OWNER, STRANGER, MessagePath, message

PHONE, SLACK, WEB = Address("fake", "bot", OWNER), Address("slack", "team", "D1"), Address("web", "", "main")


def at(address: Address, text: str, sender: str) -> Inbound:
    return replace(message(text, sender=sender), address=address)


@pytest.fixture
async def gate(path: MessagePath) -> Gate:
    path.people.allow({"fake": Access(allow=frozenset({MEMBER})), "slack": Access(allow=frozenset({"U9"}))})
    await path.outbound.adopt("slack", FakeChannel("slack"))
    inbound, notices, offer = path.inbound.accept, path.notices, path.zones.offer
    return Gate(path.parts.core, inbound, notices, path.outbound, offer)


async def offered(path: MessagePath, **who: str) -> str:
    """A fresh code, read out of the answer to /link."""
    text = (await path.answer(await path.tell("/link", **who))).text
    found = re.search(r"/link ([A-Z2-9]{8}) ", text)
    assert found is not None, text
    return found[1]


async def joined(gate: Gate, path: MessagePath, typed: str, *, who: str = "U1", **person: str) -> None:
    """An account gives a person's code, and that person taps Join."""
    code = await offered(path, **person)
    await gate.receive([at(SLACK, f"{typed} {code}", who)])
    await path.tell(f"/link join {code}", **person)


async def last(path: MessagePath) -> str:
    [(text,)] = await path.rows("select text from messages where kind = 'notice' order by id desc limit 1")
    return str(text)


async def sessions(path: MessagePath) -> dict[str, object]:
    return dict(await path.rows("select channel || ' ' || chat, session_id from addresses"))


async def test_a_strangers_account_becomes_the_persons_and_hears_what_was_said(gate: Gate, path: MessagePath) -> None:
    async with path.working():
        await path.ask("my name is Ada")
        await joined(gate, path, "/link")
        await gate.receive([at(SLACK, "what is my name?", "U1")])
        await eventually(lambda: len(path.model.prompts) == 2)
    assert "my name is Ada" in repr(path.model.prompts[1])
    assert len(set((await sessions(path)).values())) == 1
    assert path.people.role(at(SLACK, "hi", "U1")) is Role.OWNER
    assert await path.rows("select identities from principals") == [(["fake:1", "slack:U1"],)]


async def test_a_link_to_the_bot_that_carries_a_code_joins_as_if_it_had_been_typed(
    gate: Gate, path: MessagePath
) -> None:
    await joined(gate, path, "/start")
    assert path.people.role(at(SLACK, "hi", "U1")) is Role.OWNER
    await path.inbound.accept([at(WEB, f"/start {await offered(path)}", "x")])
    assert len(set((await sessions(path)).values())) == 1


async def test_the_web_page_goes_on_where_the_phone_was(path: MessagePath) -> None:
    first = await path.tell("hello")
    code = await offered(path)
    await path.inbound.accept([at(WEB, "something else", "x"), at(WEB, f"/link {code}", "x")])
    assert set((await sessions(path)).values()) == {first.session_id}
    assert "1 unanswered message" in await last(path)
    assert await path.rows("select ended_at is null from sessions where id <> $1", first.session_id) == [(False,)]


async def test_what_runs_where_it_came_from_is_stopped_and_what_runs_here_goes_on(path: MessagePath) -> None:
    path.model.gate = asyncio.Event()
    async with path.working():
        here = await path.tell("here")
        await path.model.called.wait()
        code = await offered(path)
        path.model.called.clear()
        [there] = await path.inbound.accept([at(WEB, "there", "x")])
        await path.model.called.wait()
        await path.inbound.accept([at(WEB, f"/link {code}", "x")])
        assert (await path.answer(there)).text == "Stopped."
        path.model.gate.set()
        assert (await path.answer(here)).text == "re: here"


async def test_off_parts_a_chat_from_the_others(path: MessagePath) -> None:
    await path.tell("hello")
    await path.inbound.accept([at(WEB, f"/link {await offered(path)}", "x")])
    await path.inbound.accept([at(WEB, "/link off", "x")])
    assert len(set((await sessions(path)).values())) == 2
    await path.inbound.accept([at(WEB, "/link off", "x")])
    assert await last(path) == "This chat already has its own conversation."


async def test_a_code_is_good_once_for_one_chat_and_ten_minutes(path: MessagePath) -> None:
    await path.tell("hello")
    code = await offered(path)
    other = replace(WEB, chat="other")
    await path.inbound.accept([at(WEB, f"/link {code}", "x")])
    await path.inbound.accept([at(WEB, f"/link {await offered(path)}", "x")])
    assert await last(path) == "These chats already share a conversation."
    await path.inbound.accept([at(other, f"/link {code}", "x")])
    assert (await last(path)).startswith("This code isn't valid")
    code = await offered(path)
    await path.rows("update links set expires_at = now()")
    await path.inbound.accept([at(other, f"/link {code}", "x")])
    assert (await last(path)).startswith("This code isn't valid")
    assert len(set((await sessions(path)).values())) == 2


async def test_a_new_code_makes_the_one_before_void(path: MessagePath) -> None:
    first = await offered(path)
    await offered(path)
    await path.inbound.accept([at(WEB, f"/link {first}", "x")])
    assert (await last(path)).startswith("This code isn't valid")


async def test_an_account_that_is_somebodys_stays_it(gate: Gate, path: MessagePath) -> None:
    await path.tell("I was here", sender=MEMBER, chat=MEMBER)
    code = await offered(path)
    before = await sessions(path)
    await gate.receive([message(f"/link {code}", sender=MEMBER, chat=MEMBER)])
    assert (await last(path)).startswith("This account already belongs to another person")
    assert await sessions(path) == before


async def test_an_allowed_account_that_is_nobodys_yet_can_be_joined_even_after_a_slip(
    gate: Gate, path: MessagePath
) -> None:
    code = await offered(path)
    await gate.receive([at(SLACK, f"/link {new_code()}", "U9")])
    assert "slack D1" not in await sessions(path)
    assert "This code isn't valid" in gate._answers.get_nowait().text
    await gate.receive([at(SLACK, f"/link {code}", "U9")])
    await path.tell(f"/link join {code}")
    assert path.people.role(at(SLACK, "hi", "U9")) is Role.OWNER


async def test_groups_are_not_joined(gate: Gate, path: MessagePath) -> None:
    code = await offered(path)
    await gate.receive([message(text, chat="g", private=False) for text in ("/link", f"/link {code}")])
    assert (await last(path)).startswith("Linking only works in private chats")
    assert await path.rows("select count(*) from links") == [(1,)]


async def test_guessing_is_answered_with_silence_and_then_not_heard_at_all(gate: Gate, path: MessagePath) -> None:
    code = await offered(path)
    for _ in range(5):
        await gate.receive([message(f"/link {new_code()}", sender=STRANGER, chat=STRANGER)])
    await gate.receive([message(f"/link {code}", sender=STRANGER, chat=STRANGER)])
    assert path.people.role(message("hi", sender=STRANGER)) is Role.STRANGER
    assert (gate._answers.qsize(), path.channel.asked) == (0, 0)
    await gate.receive([message(f"/link {code}", sender="4", chat="4")])
    await path.tell(f"/link join {code}")
    assert path.people.role(message("hi", sender="4")) is Role.OWNER


async def test_a_members_code_opens_no_door_that_is_the_owners(gate: Gate, path: MessagePath) -> None:
    code = await offered(path, sender=MEMBER, chat=MEMBER)
    path.people.allow({"fake": Access(allow=frozenset({MEMBER})), "slack": Access("owner")})
    await gate.receive([at(SLACK, f"/link {code}", "U1")])
    assert "slack D1" not in await sessions(path)


async def test_a_members_other_account_goes_when_the_member_goes(gate: Gate, path: MessagePath) -> None:
    await joined(gate, path, "/link", sender=MEMBER, chat=MEMBER)
    await gate.receive([at(SLACK, "hello", "U1")])
    assert path.people.role(at(SLACK, "hi", "U1")) is Role.MEMBER
    assert await path.rows("select count(distinct principal_id) from addresses") == [(1,)]
    path.people.allow({"fake": Access(), "slack": Access()})
    assert path.people.role(at(SLACK, "hi", "U1")) is Role.STRANGER


async def test_joined_chats_never_wait_in_a_circle(path: MessagePath) -> None:
    """Deadlocks would be retried in silence: the server counts them."""
    await path.tell("hello")
    chats = [PHONE, *(replace(WEB, chat=str(n)) for n in range(3))]
    for chat in chats[1:]:
        await path.inbound.accept([at(chat, f"/link {await offered(path)}", OWNER)])
    assert len(set((await sessions(path)).values())) == 1

    async def talk(chat: Address) -> None:
        for n in range(12):
            await path.inbound.accept([at(chat, "/new" if n % 3 == 0 else f"message {n}", OWNER)])

    await asyncio.gather(*(talk(chat) for chat in chats))
    assert await path.rows("select count(*) from inbox where handled_at is null") == [(0,)]
    assert len(set((await sessions(path)).values())) == 1
    await path.rows("select pg_stat_force_next_flush()")
    assert await path.rows("select deadlocks from pg_stat_database where datname = current_database()") == [(0,)]


async def test_chats_that_are_joined_and_parted_all_the_time_lose_nothing(path: MessagePath) -> None:
    await path.tell("hello")
    chats = [replace(WEB, chat=str(n)) for n in range(3)]

    async def talk(chat: Address) -> None:
        for n in range(8):
            code = new_code()
            await path.rows(
                "insert into links (code, principal_id, address_id) "
                "select $1, principal_id, id from addresses where channel = 'fake'",
                code,
            )
            await path.inbound.accept(
                [at(chat, text, OWNER) for text in (f"/link {code}", f"{n}", "/new", "/link off")]
            )

    await asyncio.gather(*(talk(chat) for chat in chats))
    await path.command_runner.resume()
    assert await path.rows("select count(*), count(handled_at) from inbox where channel = 'web'") == [(96, 96)]
    assert await path.rows("select count(*) from links") == [(0,)]
    assert await path.rows(
        "select count(*) from messages where kind = 'notice' and text like 'That command failed%'"
    ) == [(0,)]
    assert await path.rows(
        """select count(*) from addresses a join sessions s on s.id = a.session_id
           where s.ended_at is not null or s.principal_id <> a.principal_id"""
    ) == [(0,)]


async def test_a_code_in_a_thiefs_hand_joins_nothing_by_itself(gate: Gate, path: MessagePath) -> None:
    await path.tell("hello")
    code = await offered(path)
    await gate.receive([at(SLACK, f"/link {code}", "thief")])
    assert path.people.role(at(SLACK, "hi", "thief")) is Role.STRANGER
    await gate.receive([at(SLACK, f"/link join {code}", "thief"), at(SLACK, "who am I?", "thief")])
    assert "slack D1" not in await sessions(path)
    assert "where you got the code" in gate._answers.get_nowait().text

    [(text, buttons)] = await path.rows("select text, buttons from outbox order by id desc limit 1")
    assert all(part in text for part in ("`Ada` on slack (id `thief`)", "say no"))
    assert [button["value"] for button in buttons] == [f"/link join {code}", f"/link deny {code}"]
    await path.tell(f"/link deny {code}")
    assert "is not linked" in await last(path)
    await path.tell(f"/link join {code}")
    assert (await last(path)).startswith("This code isn't valid")
    assert path.people.role(at(SLACK, "hi", "thief")) is Role.STRANGER


async def test_only_the_person_whose_code_it_was_says_yes(gate: Gate, path: MessagePath) -> None:
    code = await offered(path)
    await gate.receive([at(SLACK, f"/link {code}", "U1")])
    await path.tell(f"/link join {code}", sender=MEMBER, chat=MEMBER)
    await path.inbound.accept([at(Address("terminal", "token", "main"), f"/link join {code}", "owner")])
    assert path.people.role(at(SLACK, "hi", "U1")) is Role.STRANGER
    await path.inbound.accept([at(WEB, f"/link join {code}", "x")])
    assert path.people.role(at(SLACK, "hi", "U1")) is Role.OWNER


async def test_a_yes_comes_within_ten_minutes(gate: Gate, path: MessagePath) -> None:
    code = await offered(path)
    await gate.receive([at(SLACK, f"/link {code}", "U1")])
    await path.rows("update links set expires_at = now()")
    await path.tell(f"/link join {code}")
    assert (await last(path)).startswith("This code isn't valid")
    assert path.people.role(at(SLACK, "hi", "U1")) is Role.STRANGER


async def test_all_accounts_hear_of_one_more(gate: Gate, path: MessagePath) -> None:
    await path.tell("hello")
    await joined(gate, path, "/link")
    third = Address("slack", "team", "D3")
    code = await offered(path)
    await gate.receive([at(third, f"/link {code}", "U3")])
    await path.inbound.accept([at(WEB, f"/link join {code}", "x")])
    told = await path.rows(
        """select a.channel || ' ' || a.chat from messages m join addresses a on a.id = m.address_id
           where m.text like '%`Ada` on slack (id `U3`) is now one of your accounts. If%' order by 1"""
    )
    assert told == [("fake 1",), ("slack D1",), ("web main",)]
    sent = await path.rows("select count(*) from outbox where text like '%(id `U3`) is now one of your accounts. If%'")
    assert sent == [(2,)]


async def parted(path: MessagePath, identity: str = "slack:U1") -> None:
    await Pairing(path.database, lambda: path.people.refresh(path.database)).part(identity)


async def test_a_parted_account_is_a_strangers_at_once(gate: Gate, path: MessagePath) -> None:
    await path.tell("hello")
    await joined(gate, path, "/link")
    mine = (await sessions(path))["fake 1"]
    await path.proactive.notify(path.people.owner.id, Notice("in private"))
    await parted(path)
    assert path.people.role(at(SLACK, "hi", "U1")) is Role.STRANGER
    assert (await sessions(path))["slack D1"] != mine
    [(owner,)] = await path.rows("select principal_id from addresses where channel = 'slack'")
    assert owner != path.people.owner.id
    open_parts = (
        "select count(*) from outbox o join addresses a on a.id = o.address_id where a.channel = $1 and state = $2"
    )
    assert await path.rows(open_parts, "slack", "pending") == [(0,)]
    [(told,)] = await path.rows(f"{open_parts} and o.text like '%no longer one of your accounts%'", "fake", "pending")
    assert told == 1
    with pytest.raises(OwnerMustAct, match="is not linked"):
        await parted(path)


async def test_what_a_parted_account_asked_gets_no_answer(gate: Gate, path: MessagePath) -> None:
    await joined(gate, path, "/link")
    path.model.gate = asyncio.Event()
    async with path.working():
        await gate.receive([at(SLACK, "what did I say?", "U1")])
        await path.model.called.wait()
        await parted(path)
        path.model.gate.set()
        await path.model.let_go.wait()
        assert (await path.ask("still here?")).endswith("still here?")
    assert await path.rows(
        """select count(*) from outbox o join addresses a on a.id = o.address_id
           where a.channel = 'slack' and o.text like 're:%'"""
    ) == [(0,)]


async def test_a_parted_account_can_be_a_member_and_be_joined_again(gate: Gate, path: MessagePath) -> None:
    await joined(gate, path, "/link", who="U9")
    await parted(path, "slack:U9")
    async with path.working():
        [said] = await path.inbound.accept([at(SLACK, "hello", "U9")])
        assert (await path.answer(said)).text == "re: hello"
    assert "slack:U9" in repr(await path.rows("select identities from principals where role = 'member'"))
    await joined(gate, path, "/link", who="U1")
    await parted(path)
    await joined(gate, path, "/link", who="U1")
    assert path.people.role(at(SLACK, "hi", "U1")) is Role.OWNER


async def test_a_member_keeps_one_account(gate: Gate, path: MessagePath) -> None:
    await joined(gate, path, "/link", sender=MEMBER, chat=MEMBER)
    await parted(path)
    with pytest.raises(OwnerMustAct, match="is not linked"):
        await parted(path, f"fake:{MEMBER}")
