import asyncio
from dataclasses import replace
from typing import Any

from gateway.domain.conversation.inbound import Sender
from gateway.domain.people.credentials import CodeRefusal
from gateway.domain.principals import Role
from gateway.store.people import pairings, principals
from gateway.store.people.pairings import PairingRow
from tests.store.world import HOME, World, arrival


async def guess(world: World, who: str) -> bool:
    """Whether it was still counted as one."""
    async with world.database.transaction() as tx:
        if await pairings.is_locked_out(tx, who):
            return False
        await pairings.note_wrong_code(tx, who)
        return True


async def test_the_sixth_is_not_heard_and_others_are(world: World) -> None:
    assert [await guess(world, "a") for _ in range(7)] == [True] * 5 + [False] * 2
    assert await guess(world, "b")


async def test_those_made_at_once_count_one_after_another(world: World) -> None:
    assert sum(await asyncio.gather(*(guess(world, "a") for _ in range(9)))) == pairings.MAX_WRONG_CODES


async def test_the_last_one_starts_the_ten_minutes_and_then_all_is_forgotten(world: World) -> None:
    await guess(world, "a")
    await world.do("update guesses set until = now() + interval '1 second'")
    for _ in range(4):
        await guess(world, "a")
    assert await world.value("select until > now() + interval '9 minutes' from guesses")
    await world.do("update guesses set until = now()")
    assert await guess(world, "a")
    assert await world.column("select wrong from guesses") == [1]


async def request(world: World, sender: str, code: str = "ABCDEFGH", **more: Any) -> PairingRow | None:
    inbound = replace(arrival(), sender=Sender(sender, more.pop("name", "Bob")), **more)
    async with world.database.transaction() as tx:
        return await pairings.request(tx, inbound, code)


async def approve(world: World, code: str) -> PairingRow | CodeRefusal:
    return await world.database.run(lambda tx: pairings.approve(tx, code))


async def test_who_asks_again_waits_until_the_code_has_run_out(world: World) -> None:
    first = await request(world, "2")
    assert await request(world, "2", "22222222") is None
    await world.do("update pairings set expires_at = now()")
    again = await request(world, "2", "22222222", name="Robert")
    assert first is not None
    assert again is not None
    assert (again.id, again.code, again.name) == (first.id, "22222222", "Robert")


async def test_each_channel_has_places_of_its_own(world: World) -> None:
    for n in range(pairings.AT_ONCE):
        assert await request(world, f"s{n}", f"2222222{n + 2 if n < 8 else 'AB'[n - 8]}")
    assert await request(world, "late", "33333333") is None
    assert await request(world, "late", "33333333", address=replace(HOME, channel="other"))


async def test_requests_nobody_answered_are_forgotten_after_a_day(world: World) -> None:
    await request(world, "2")
    await world.do("update pairings set expires_at = now() - interval '25 hours'")
    await request(world, "3", "33333333")
    assert await world.column("select sender from pairings") == ["3"]


async def test_a_name_is_kept_short_and_on_its_line(world: World) -> None:
    asked = await request(world, "2", name="\u202eBob\n" * 100)
    assert asked is not None
    assert "\n" not in str(asked)
    assert len(asked.name) <= 64
    assert str(await request(world, "3", "33333333", name="``")) == "`?` on fake (id `3`)"


async def test_who_is_let_in_is_a_member_and_hears_of_it(world: World) -> None:
    await request(world, "2", address=replace(HOME, chat="2"))
    inside = await approve(world, "abcd-efgh")
    assert isinstance(inside, PairingRow)
    assert inside.principal_id is not None
    async with world.database.connection() as conn:
        assert (await principals.get(conn, inside.principal_id)).role is Role.MEMBER
        assert await pairings.admitted(conn) == [inside]
        assert await pairings.open_requests(conn) == []
    assert await world.column("select text from outbox where principal_id = $1", inside.principal_id) == [
        pairings.WELCOME
    ]
    assert await request(world, "2", "22222222") is None


async def test_a_number_or_a_code_turns_down_and_takes_back(world: World) -> None:
    first, second = await request(world, "2"), await request(world, "3", "33333333")
    assert first is not None
    assert second is not None
    async with world.database.transaction() as tx:
        await pairings.approve(tx, first.code)
        for which, row in ((str(first.id), first), ("3333-3333", second)):
            denied = await pairings.deny(tx, which)
            assert isinstance(denied, PairingRow)
            assert (denied.id, denied.state) == (row.id, "denied")
            assert await pairings.deny(tx, which) is CodeRefusal.WRONG


async def test_whoever_changes_who_may_talk_tells_the_running_gateways(world: World) -> None:
    told: list[object] = []
    async with world.database.connection() as ear, world.database.connection() as conn:
        await ear.add_listener("supaclaw_people", lambda *_: told.append(_))

        async def heard(statement: str) -> int:
            await conn.execute(statement)
            await ear.fetchval("select 1")  # what was notified comes before the answer
            told.clear() if (many := len(told)) else None
            return many

        asks = """insert into pairings (channel, account, chat, thread, sender, name, code)
                  values ('fake', '', '', '', '2', '', 'ABCDEFGH')
                  on conflict (channel, sender) do update set state = 'open'"""
        member = (
            "insert into principals (id, role, name, identities) values (gen_random_uuid(), 'member', '', '{fake:2}')"
        )
        silent = [await heard(each) for each in (asks, asks, member, "update principals set name = 'Eve'")]
        let_in = "update pairings set state = 'approved', principal_id = (select id from principals limit 1)"
        loud = [let_in, "update pairings set state = 'denied'", "update principals set identities = '{fake:3}'"]
        assert (silent, [await heard(each) > 0 for each in loud]) == ([0, 0, 0, 0], [True, True, True])
        await ear.reset()
