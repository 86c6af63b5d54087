import asyncio
from dataclasses import replace

import pytest

from gateway.domain.conversation.inbound import Address
from gateway.domain.people.access import Access
from gateway.domain.principals import Role
from gateway.flow.people import People, meet
from gateway.store.connection.pool import Database
from gateway.store.people import pairings, principals
from tests.flow.path import MEMBER, OWNER, STRANGER, MessagePath, message


async def identities(database: Database) -> tuple[str, ...]:
    async with database.connection() as conn:
        return (await principals.lock_owner(conn)).identities


@pytest.fixture
async def people(database: Database) -> People:
    people = await meet(database, "Ada", {"fake": OWNER})
    people.allow({"fake": Access("allowlist", frozenset({MEMBER}))})
    return people


async def test_the_owner_is_fixed_at_the_first_start(database: Database) -> None:
    first = await meet(database, "Ada", {"fake": "1"})
    later = await meet(database, "Eve", {"fake": "9"})
    assert later.owner.id == first.owner.id
    assert await identities(database) == ("fake:1",)
    assert later.role(message("hi", sender="9")) is Role.STRANGER


async def test_the_name_follows_the_configuration(database: Database) -> None:
    people = await meet(database, "Owner", {})
    await people.learn(database, "Ada", {"fake": "1"})
    assert people.owner.name == "Ada"
    assert people.role(message("hi", sender="1")) is Role.OWNER
    assert (await meet(database, "Ada", {})).owner == people.owner


async def test_another_channels_id_is_learned_once(database: Database) -> None:
    await meet(database, "Ada", {})
    await meet(database, "Ada", {"fake": "1"})
    await meet(database, "Ada", {"fake": "9", "slack": "U1"})
    await meet(database, "Ada", {"fake": "9", "slack": "U9"})
    assert await identities(database) == ("fake:1", "slack:U1")


async def test_who_is_who_follows_the_channels_rule(people: People) -> None:
    roles = [people.role(message("hi", sender=sender)) for sender in (OWNER, MEMBER, STRANGER)]
    assert roles == [Role.OWNER, Role.MEMBER, Role.STRANGER]
    people.allow({"fake": Access("owner")})
    assert people.role(message("hi", sender=MEMBER)) is Role.STRANGER


async def test_a_channel_without_a_rule_admits_the_owner_alone(people: People) -> None:
    people.allow({})
    assert [people.role(message("hi", sender=s)) for s in (OWNER, MEMBER)] == [Role.OWNER, Role.STRANGER]


@pytest.mark.parametrize("channel", ["web", "terminal", "api"])
async def test_whoever_holds_the_owners_credential_is_the_owner(people: People, channel: str) -> None:
    assert people.role(replace(message("hi", sender="x"), address=Address(channel, "", "1"))) is Role.OWNER


async def test_data_belongs_to_the_person_or_to_the_group(people: People, database: Database) -> None:
    async with database.transaction() as tx:
        mine = await people.principal(tx, message("hi"), Role.OWNER)
        theirs = await people.principal(tx, message("hi", sender=MEMBER), Role.MEMBER)
        group = await people.principal(tx, message("hi", chat="g", private=False), Role.OWNER)
        again = await people.principal(tx, message("hi", chat="g", sender=MEMBER, private=False), Role.MEMBER)
        names = {(await principals.get(tx, id)).name for id in (theirs, group)}
    assert people.is_owner(mine)
    assert len({mine, theirs, group}) == 3
    assert (again, names) == (group, {"Ada", "group g"})
    assert not people.is_owner(group)


async def test_who_began_to_look_before_somebody_was_turned_away_does_not_let_them_in_again(
    people: People, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.allow({"fake": Access("pairing")})
    answers, asked, go_on = [frozenset({"fake:3"}), frozenset[str]()], asyncio.Event(), asyncio.Event()

    async def slow(_: object) -> frozenset[str]:
        paired = answers.pop(0)
        if answers:
            asked.set()
            await go_on.wait()
        return paired

    monkeypatch.setattr(pairings, "paired", slow)
    looks = [asyncio.create_task(people.refresh(database))]
    await asked.wait()
    looks.append(asyncio.create_task(people.refresh(database)))
    await asyncio.wait(looks[1:], timeout=0.1)
    go_on.set()
    await asyncio.gather(*looks)
    assert people.role(message("hi", sender="3")) is Role.STRANGER


async def test_a_chat_goes_to_who_writes_there_now_and_what_was_said_stays_with_who_it_was(path: MessagePath) -> None:
    before = await path.tell("my secret")
    await path.rows("update principals set identities = '{fake:8}' where role = 'owner'")
    await path.people.refresh(path.database)
    after = await path.tell("hello")
    assert path.people.role(message("hello")) is Role.MEMBER
    assert after.session_id != before.session_id
    [(mine,)] = await path.rows("select principal_id = $1 from messages where text = 'hello'", path.people.owner.id)
    assert not mine
    await path.rows("update principals set identities = '{fake:1}' where role = 'owner'")
    await path.people.refresh(path.database)
    again = await path.tell("it is me")
    assert again.session_id not in (before.session_id, after.session_id)


async def test_work_is_done_for_those_who_are_let_in(path: MessagePath) -> None:
    await path.tell("hello", chat=MEMBER, sender=MEMBER)
    [(member,)] = await path.rows("select id from principals where role = 'member'")
    async with path.database.connection() as conn:
        assert await path.people.lets_in(conn, path.people.owner.id)
        assert await path.people.lets_in(conn, member)
        path.people.allow({})
        assert await path.people.lets_in(conn, path.people.owner.id)
        assert not await path.people.lets_in(conn, member)
