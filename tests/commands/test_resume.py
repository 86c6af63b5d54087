"""Going on with an earlier conversation: where, as whose, and what it keeps."""

import asyncio

from gateway.commands.resume import BUSY, READ_ONLY, WHICH
from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import SessionId
from gateway.domain.principals import Label
from gateway.store.delivery import addresses
from gateway.store.transcript import sessions
from tests.commands.test_link import WEB, at
from tests.flow.path import MEMBER, MessagePath

OPEN = "select closed_at is null from journals where session_id = $1 order by id"


async def first(path: MessagePath) -> SessionId:
    """A conversation that has ended, and another one behind it."""
    told = await path.tell("my name is Ada")
    await path.answer(told)
    await path.ask("/new")
    assert told.session_id is not None
    return told.session_id


async def places(path: MessagePath) -> dict[str, SessionId]:
    return dict(await path.rows("select channel, session_id from addresses"))


async def test_it_goes_on_where_it_ended(path: MessagePath) -> None:
    async with path.working():
        old = await first(path)
        await path.ask("something else")
        reply = await path.ask(f"/resume {str(old)[:8]}")
        assert await path.ask("what is my name?") == "re: what is my name?"
    assert reply.startswith("This chat continues the conversation of ")
    assert "my name is Ada" in repr(path.model.prompts[-1].messages)
    assert "something else" not in repr(path.model.prompts[-1].messages[1:])
    assert await places(path) == {"fake": old}
    assert await path.rows("select ended_at, ended_by_person from sessions where id = $1", old) == [(None, False)]
    assert await path.rows("select ended_by_person from sessions where id <> $1", old) == [(True,)]


async def test_what_it_goes_on_with_has_a_file_again(path: MessagePath) -> None:
    async with path.working():
        old = await first(path)
        await path.ask(f"/resume {old}")
        await path.ask("more")
        async with asyncio.timeout(30):
            while True:
                rows = await path.rows(OPEN, old)
                if rows == [(False,), (True,)]:
                    return
                await asyncio.sleep(0.02)


async def test_it_keeps_its_label(path: MessagePath) -> None:
    async with path.working():
        old = await first(path)
        async with path.database.transaction() as tx:
            await sessions.taint(tx, old, Label.UNTRUSTED)
        await path.ask(f"/resume {old}")
    assert await path.rows("select label from sessions where id = $1", old) == [(Label.UNTRUSTED,)]


async def test_one_that_is_open_elsewhere_is_shared(path: MessagePath) -> None:
    async with path.working():
        told = await path.tell("hello")
        await path.answer(told)
        await path.inbound.accept([at(WEB, f"/resume {told.session_id}", "x")])
    [(reply,)] = await path.rows("select text from messages where kind = 'notice' order by id desc limit 1")
    assert reply.endswith("It is open in another chat, too; /link off separates them.")
    assert await places(path) == {"fake": told.session_id, "web": told.session_id}


async def test_whoever_shares_the_chat_moves_along(path: MessagePath) -> None:
    async with path.working():
        old = await first(path)
        async with path.database.transaction() as tx:
            here = await sessions.current(tx, Address("fake", "bot", "1"))
            assert here is not None
            await addresses.add(tx, WEB, path.people.owner.id, here, private=True)
        await path.ask(f"/resume {old}")
    assert set((await places(path)).values()) == {old}


async def test_an_answer_under_way_is_not_cut_off(path: MessagePath) -> None:
    async with path.working():
        old = await first(path)
    await path.tell("wait for me")
    assert await path.ask(f"/resume {old}") == BUSY
    assert old not in (await places(path)).values()


async def test_what_cannot_go_on_says_so(path: MessagePath) -> None:
    async with path.working():
        old = await first(path)
        current = (await places(path))["fake"]
        await path.ask("hello")
        for text in ("", "abc", "ffffffff", f"{old}x"):
            assert await path.ask(f"/resume {text}") == WHICH
        assert await path.ask(f"/resume {current}") == "This chat already has that conversation open."
        await path.rows("update sessions set unattended = true where id = $1 returning id", old)
        assert await path.ask(f"/resume {old}") == READ_ONLY
    assert await places(path) == {"fake": current}


async def test_nobody_elses_conversation_goes_on(path: MessagePath) -> None:
    async with path.working():
        old = await first(path)
        refused = await path.ask(f"/resume {old}", sender=MEMBER, chat=MEMBER)
        assert refused == "Only the owner can use /resume, in a private chat."
        told = await path.tell("I am Bo", sender=MEMBER, chat=MEMBER)
        await path.answer(told)
        assert await path.ask(f"/resume {told.session_id}") == WHICH
