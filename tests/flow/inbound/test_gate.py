"""Who gets past the gate, and what a stranger hears there."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.channels.channel import SendFailed
from gateway.domain.conversation.inbound import Inbound, Sender
from gateway.domain.errors import DatabaseDown, OwnerMustAct, TryAgainLater
from gateway.domain.people.access import Access, GroupMode
from gateway.domain.people.credentials import new_code
from gateway.domain.principals import Role
from gateway.flow.inbound import gate as gate_module
from gateway.flow.inbound.gate import Gate
from gateway.flow.people import Pairing, meet
from gateway.store.connection.pool import Database
from gateway.store.people import accounts, pairings, principals
from gateway.store.people.pairings import PairingRow
from tests.fakes.eventually import eventually
from tests.flow.path import MEMBER, OWNER, STRANGER, MessagePath, message
from tests.store.world import blocked, held

PAIRING = Access("pairing", frozenset({MEMBER}))


@pytest.fixture
def gate(path: MessagePath) -> Gate:
    """A gate before the whole path, with codes for strangers."""
    path.people.allow({"fake": PAIRING})
    path.channel.capabilities = replace(path.channel.capabilities, buttons=True)
    inbound, notices, offer = path.inbound.accept, path.notices, path.zones.offer
    return Gate(path.parts.core, inbound, notices, path.outbound, offer)


@pytest.fixture
async def running(gate: Gate, path: MessagePath) -> AsyncIterator[None]:
    """Strangers are answered, and everybody else as well."""
    async with path.working():
        task = asyncio.create_task(gate.run())
        yield
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def pairing(path: MessagePath) -> Pairing:
    return Pairing(path.database, lambda: path.people.refresh(path.database))


def stranger(text: str = "let me in", who: str = STRANGER, name: str = "Bob", **more: Any) -> Inbound:
    return replace(message(text, sender=who, chat=who), **{"sender": Sender(who, name), **more})


async def requests(path: MessagePath) -> list[PairingRow]:
    async with path.database.connection() as conn:
        return await pairings.open_requests(conn)


async def stored(path: MessagePath) -> list[str]:
    return [text for _, text in await path.transcript()]


async def test_those_who_are_known_pass_in_order_in_one_batch(gate: Gate, path: MessagePath) -> None:
    await gate.receive(
        [message("one"), stranger("nobody"), message("two", sender=MEMBER, chat=MEMBER), message("three")]
    )
    assert sorted(await stored(path)) == ["one", "three", "two"]


@pytest.mark.parametrize("access", [Access("owner"), Access("allowlist"), Access("allowlist", frozenset({"9"}))])
async def test_a_stranger_leaves_no_trace(gate: Gate, path: MessagePath, access: Access) -> None:
    path.people.allow({"fake": access})
    await gate.receive([stranger("hello"), stranger("/ping"), stranger("/start"), stranger(f"/link {new_code()}")])
    async with path.database.connection() as conn:
        tables = [r[0] for r in await conn.fetch("select tablename from pg_tables where schemaname = 'supaclaw'")]
        found = {t for t in tables if await conn.fetchval(f"select exists (select from {t})")}
    assert found == {"principals", "migrations", "guesses", "member_keys"}
    assert path.channel.asked == 0


async def test_a_stranger_who_asks_gets_a_code_and_the_owner_is_told(
    gate: Gate, path: MessagePath, running: None
) -> None:
    await gate.receive([message("I am here")])
    await path.channel.until(bool)
    await gate.receive([stranger(name="[Bob](http://x.example)\n`boss`")])
    shown = await path.channel.until(lambda texts: len(texts) == 3)
    [asked] = await requests(path)
    told = next(m for m in path.channel.shown if m.text.startswith("`[Bob](http://x.example) boss`"))
    answer = next(m for m in path.channel.shown if m.address.chat == STRANGER)
    assert asked.code in answer.text
    assert asked.code in told.text
    assert "on fake (id `3`)" in told.text
    assert [b.value for b in told.buttons] == [f"/pairing approve {asked.code}", f"/pairing deny {asked.code}"]
    assert all(len(b.value.encode()) <= 64 for b in told.buttons)
    assert len(shown) == 3


@pytest.mark.parametrize("text", ["/start", "/start welcome", "/start K7QX2MPD"])
async def test_the_start_button_asks_to_be_let_in(gate: Gate, path: MessagePath, text: str) -> None:
    await gate.receive([stranger(text)])
    [asked] = await requests(path)
    assert asked.code in gate._answers.get_nowait().text


async def test_a_stranger_who_goes_on_hears_nothing_more(gate: Gate, path: MessagePath) -> None:
    await gate.receive([stranger(), stranger("hello?"), stranger("HELLO")])
    await gate.receive([stranger("please")])
    assert gate._answers.qsize() == 1
    assert len(await requests(path)) == 1


@pytest.mark.parametrize("more", [{"private": False}, {"edits": "m1"}, {"sender": Sender("b", "Bot", is_bot=True)}])
async def test_groups_edits_and_bots_ask_for_nothing(gate: Gate, path: MessagePath, more: dict[str, Any]) -> None:
    await gate.receive([stranger(**more)])
    assert await requests(path) == []


async def test_with_the_database_away_a_stranger_is_ignored_and_the_known_are_not(
    gate: Gate, path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise DatabaseDown("away")

    monkeypatch.setattr(Database, "run", away)
    await gate.receive([stranger(), stranger(f"/link {new_code()}"), message("hello")])
    assert (await path.rows("select count(*) from inbox"), gate._answers.qsize()) == ([(0,)], 0)


async def test_a_database_that_does_not_answer_keeps_nobody_waiting_behind_a_stranger(
    gate: Gate, path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "STRANGERS_SECONDS", 0.05)
    async with path.database.transaction() as tx:
        await tx.execute("lock table pairings")
        await gate.receive([stranger(), message("hello")])
    assert await stored(path) == ["hello"]


async def test_many_strangers_keep_the_others_waiting_no_longer_than_one(
    gate: Gate, path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []

    async def slow(*_: object) -> None:
        await asyncio.sleep(0.05)
        looked.append(1)

    monkeypatch.setattr(gate_module, "STRANGERS_SECONDS", 0.2)
    monkeypatch.setattr(pairings, "standing", slow)
    await gate.receive([*(stranger(who=f"s{n}") for n in range(50)), message("hello")])
    assert (len(looked) < 50, await stored(path)) == (True, ["hello"])


async def test_a_chat_that_hangs_keeps_no_other_stranger_from_an_answer(
    gate: Gate, path: MessagePath, running: None
) -> None:
    path.channel.gates["a"] = asyncio.Event()
    await gate.receive([stranger(who="a"), stranger(who="b")])
    await path.channel.until(bool)
    assert [m.address.chat for m in path.channel.shown] == ["b"]


async def test_a_thousand_decisions_at_once_are_looked_at_a_few_times(
    gate: Gate, path: MessagePath, running: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    refresh = path.people.refresh

    async def counted(database: Database) -> None:
        looked.append(1)
        await refresh(database)

    monkeypatch.setattr(path.people, "refresh", counted)
    for _ in range(1000):
        path.signals.people_changed()
        await asyncio.sleep(0)
    await eventually(lambda: len(looked) == 2)
    path.signals.people_changed()
    await eventually(lambda: len(looked) == 3)


async def test_a_stranger_who_goes_on_costs_one_question(
    gate: Gate, path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gate.receive([stranger()])
    monkeypatch.setattr(Database, "transaction", None)
    await gate.receive([stranger("hello?")] * 5)
    assert gate._answers.qsize() == 1


async def test_who_joins_does_not_wait_in_a_circle_with_who_is_let_in(
    gate: Gate, path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who lets somebody in holds a chat of their own first, then what makes members; so must who joins that chat."""
    await gate.receive([message("hello")])
    code, tried, settle = new_code(), [], accounts.settle

    async def counted(*arguments: Any, **more: Any) -> Any:
        tried.append(1)
        return await settle(*arguments, **more)

    monkeypatch.setattr(accounts, "settle", counted)
    await path.rows(
        "insert into links (code, principal_id, address_id) select $1, principal_id, id from addresses", code
    )
    await gate.receive([stranger(f"/link {code}")])
    async with held(path.database, "select from addresses for no key update") as tx:
        join = await blocked(path.database, path.tell(f"/link join {code}"))
        await principals.ensure_member(tx, "Eve", "fake:9")
    await join
    assert (path.people.role(stranger()), tried) == (Role.OWNER, [1])


async def test_what_may_not_be_acknowledged_is_not(
    gate: Gate, path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_: object) -> None:
        raise TryAgainLater("the disk is full")

    monkeypatch.setattr(gate, "accept", full)
    await gate.receive([stranger()])
    with pytest.raises(TryAgainLater, match="disk"):
        await gate.receive([stranger(), message("hello")])


async def test_a_stranger_who_cannot_be_answered_disturbs_nobody(gate: Gate, path: MessagePath, running: None) -> None:
    path.channel.faults = [SendFailed("blocked"), RuntimeError("a bug")]
    await gate.receive([stranger(who="a"), stranger(who="b"), stranger(who="c")])
    assert "don't know you" in (await path.channel.until(bool))[0]


@pytest.mark.parametrize(("groups", "texts"), [("off", []), ("mention", ["to you"]), ("all", ["among us", "to you"])])
async def test_groups_are_heard_as_the_rule_says(
    gate: Gate, path: MessagePath, groups: GroupMode, texts: list[str]
) -> None:
    path.people.allow({"fake": Access("allowlist", frozenset({MEMBER}), groups)})
    batch = [message("among us", addressed=False, private=False, chat="g"), message("to you", private=False, chat="g")]
    await gate.receive([*batch, stranger("and me", private=False)])
    assert await stored(path) == texts


async def test_in_a_group_that_is_let_in_everybody_is(gate: Gate, path: MessagePath) -> None:
    path.people.allow({"fake": Access("allowlist", frozenset({"g"}))})
    await gate.receive([replace(message("hi", chat="g", sender="9"), private=False), stranger("hi", who="9")])
    assert await path.rows("select p.name, m.text from messages m join principals p on p.id = m.principal_id") == [
        ("group g", "hi")
    ]


async def test_the_owner_lets_somebody_in_by_a_button(gate: Gate, path: MessagePath, running: None) -> None:
    await gate.receive([message("hello")])
    await gate.receive([stranger("hi, it is Bob")])
    [asked] = await requests(path)
    assert asked.state == "open"
    await gate.receive([message(f"/pairing approve {asked.code}")])
    await path.channel.until(lambda texts: pairings.WELCOME in texts)
    [welcome] = [m for m in path.channel.shown if m.text == pairings.WELCOME]
    assert welcome.address.chat == STRANGER
    await gate.receive([stranger("thanks")])
    await path.channel.until(lambda texts: "re: thanks" in texts)
    [(role, identities)] = await path.rows("select role, identities from principals where role <> 'owner'")
    assert (role, identities) == ("member", [f"fake:{STRANGER}"])


async def test_who_is_taken_back_is_a_stranger_again_and_for_a_day(
    gate: Gate, path: MessagePath, pairing: Pairing
) -> None:
    await gate.receive([stranger()])
    [asked] = await pairing.open_requests()
    await pairing.approve(asked.code)
    assert [row.id for row in await pairing.admitted()] == [asked.id]
    await gate.receive([message("/pairing list"), message(f"/pairing deny {asked.id}")])
    await gate.receive([stranger("hello")])
    assert await pairing.admitted() == []
    assert "hello" not in await stored(path)
    await path.rows("update pairings set expires_at = now() - interval '1 hour'")
    await gate.receive([stranger()])
    assert await requests(path) == []
    await path.rows("update pairings set decided_at = now() - interval '1 day'")
    await gate.receive([stranger()])
    assert len(await requests(path)) == 1


async def test_what_another_process_decides_counts_with_the_strangers_next_word(gate: Gate, path: MessagePath) -> None:
    await gate.receive([stranger()])
    elsewhere = Pairing(path.database)
    [asked] = await elsewhere.open_requests()
    assert await elsewhere.approve(asked.code.lower())
    assert path.people.role(stranger()) is Role.STRANGER
    await gate.receive([stranger("am I in?")])
    assert "am I in?" in await stored(path)


@pytest.mark.parametrize("access", [Access("owner"), PAIRING])
async def test_the_first_word_of_an_account_that_another_process_linked_is_kept(
    gate: Gate, path: MessagePath, access: Access
) -> None:
    path.people.allow({"fake": access})
    async with path.database.transaction() as tx:
        await principals.add_identity(tx, path.people.owner.id, f"fake:{STRANGER}")
    await gate.receive([stranger("it is me")])
    assert "it is me" in await stored(path)


async def test_it_follows_what_another_process_takes_back(gate: Gate, path: MessagePath, running: None) -> None:
    await gate.receive([stranger()])
    elsewhere = Pairing(path.database)
    [asked] = await elsewhere.open_requests()
    await elsewhere.approve(asked.code)
    await gate.receive([stranger("hello")])
    await elsewhere.deny(str(asked.id))
    path.signals.people_changed()
    await eventually(lambda: path.people.role(stranger()) is Role.STRANGER)
    await gate.receive([stranger("still there?")])
    assert "still there?" not in await stored(path)


async def test_who_was_let_in_is_known_after_a_restart_as_long_as_the_channel_pairs(
    gate: Gate, path: MessagePath, pairing: Pairing
) -> None:
    await gate.receive([stranger()])
    [asked] = await pairing.open_requests()
    await pairing.approve(asked.code)
    people = await meet(path.database, "Ada", {"fake": OWNER})
    people.allow({"fake": PAIRING})
    assert people.role(stranger()) is Role.MEMBER
    people.allow({"fake": replace(PAIRING, mode="allowlist")})
    assert people.role(stranger()) is Role.STRANGER


async def test_five_wrong_codes_close_the_door_for_ten_minutes_wherever_they_are_typed(
    gate: Gate, path: MessagePath, pairing: Pairing
) -> None:
    await gate.receive([stranger()])
    [asked] = await pairing.open_requests()
    for _ in range(3):
        assert "This code isn't valid" in await path.ask(f"/pairing approve {new_code()}")
    for _ in range(2):
        with pytest.raises(OwnerMustAct, match="This code isn't valid"):
            await pairing.approve("wrong")
    with pytest.raises(OwnerMustAct, match="Too many wrong codes"):
        await pairing.approve(asked.code)
    assert "Too many wrong codes" in await path.ask(f"/pairing approve {asked.code}")
    await path.rows("update guesses set until = now()")
    assert (await pairing.approve(asked.code)).state == "approved"


async def test_a_code_is_good_once_and_for_ten_minutes(gate: Gate, path: MessagePath, pairing: Pairing) -> None:
    await gate.receive([stranger(), stranger(who="4")])
    first, second = await pairing.open_requests()
    await pairing.approve(first.code)
    with pytest.raises(OwnerMustAct):
        await pairing.approve(first.code)
    await path.rows("update pairings set expires_at = now() where id = $1", second.id)
    with pytest.raises(OwnerMustAct):
        await pairing.approve(second.code)
    assert (second.expires_at - second.asked_at).total_seconds() == 600


async def test_a_former_owners_chat_is_not_the_members(gate: Gate, path: MessagePath, pairing: Pairing) -> None:
    await gate.receive([message("my secret")])
    await path.rows("update principals set identities = '{fake:8}'")
    await path.people.refresh(path.database)
    await gate.receive([message("let me in")])
    [asked] = await pairing.open_requests()
    await pairing.approve(asked.code)
    await gate.receive([message("hello")])
    [(secret, hello)] = await path.rows(
        "select a.session_id <> b.session_id, a.principal_id <> b.principal_id from messages a, messages b"
        " where a.text = 'my secret' and b.text = 'hello'"
    )
    assert (secret, hello) == (True, True)
