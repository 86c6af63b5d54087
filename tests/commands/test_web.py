"""The link that /web sends: to whom, by whom, and where it is kept."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.store.connection.pool import Database
from tests.flow.path import MEMBER, FakeModel, MessagePath, build

PUBLIC = "https://claw.example.org"


@pytest.fixture
async def reachable(database: Database, workspace: Path) -> MessagePath:
    """A gateway whose page has a public address."""
    path = await build(database, workspace, FakeModel())
    path.page_links.public_url = PUBLIC
    return path


def secret_in(path: MessagePath) -> str:
    [sent] = [each.text for each in path.channel.shown if "#t=" in each.text]
    return sent.partition("#t=")[2]


async def test_the_link_arrives_in_the_chat_and_works_once(reachable: MessagePath) -> None:
    async with reachable.working():
        answer = await reachable.ask("/web")
        await reachable.channel.until(lambda texts: any("#t=" in text for text in texts))
    assert answer.startswith("Your sign-in link. It works once, for ten minutes.")
    [sent] = reachable.channel.shown
    assert f"\n\n{PUBLIC}/login#t=" in sent.text
    now = reachable.clock.now()
    assert reachable.page_links.logins.redeem(secret_in(reachable), now)
    assert not reachable.page_links.logins.redeem(secret_in(reachable), now)


async def test_what_the_agent_reads_holds_no_link(reachable: MessagePath) -> None:
    async with reachable.working():
        await reachable.ask("/web")
        await reachable.ask("hello")
        await reachable.journal.catch_up()
    assert await reachable.rows("select from messages where text like '%#t=%'") == []
    assert "#t=" not in str(reachable.model.prompts)
    files = [each.read_text() for each in reachable.workspace.rglob("*.md")]
    assert files
    assert not any("#t=" in text for text in files)


async def test_without_a_public_address_it_says_how(path: MessagePath) -> None:
    answer = await path.ask("/web")
    assert "set web.public_url" in answer
    assert await path.rows("select from outbox where text like '%#t=%'") == []


async def test_an_address_of_this_machine_is_none(path: MessagePath) -> None:
    path.page_links.public_url = "http://localhost:8787"
    assert "set web.public_url" in await path.ask("/web")


async def links(path: MessagePath) -> int:
    [(count,)] = await path.rows("select count(*) from outbox where text like '%#t=%'")
    return count


async def test_a_member_gets_none(reachable: MessagePath) -> None:
    answer = await reachable.ask("/web", chat=MEMBER, sender=MEMBER)
    assert (answer, await links(reachable)) == ("Only the owner can use /web, in a private chat.", 0)


async def test_a_group_gets_none(reachable: MessagePath) -> None:
    answer = await reachable.ask("/web", chat="-100", private=False)
    assert (answer, await links(reachable)) == ("Only the owner can use /web, in a private chat.", 0)


async def test_a_forwarded_text_is_no_command(reachable: MessagePath) -> None:
    accepted = await reachable.tell("/web", forwarded="a message from Eve")
    kinds = await reachable.rows("select kind, sender from inbox where platform_id is not null")
    assert (accepted.message_id is not None, kinds) == (True, [("message", "")])
    assert await links(reachable) == 0


@pytest.mark.parametrize("as_owner", [True, False])
async def test_no_token_gets_one(reachable: MessagePath, as_owner: bool) -> None:
    at = Address("api", "6f2c1f0e-0000-4000-8000-000000000000", "main")
    inbound = Inbound(at, Sender("owner", "Ada"), "/web", "m1", datetime.now(UTC), as_owner=as_owner, private=True)
    [accepted] = await reachable.inbound.accept([inbound])
    assert (await reachable.answer(accepted)).text.startswith("Tokens can't do this")
    assert await links(reachable) == 0


async def test_the_page_and_the_terminal_are_told_where_it_works(reachable: MessagePath) -> None:
    for channel in ("web", "terminal"):
        at = Address(channel, "local" if channel == "terminal" else "owner", "main")
        inbound = Inbound(
            at, Sender("owner", "Ada"), "/web", f"m-{channel}", datetime.now(UTC), private=True, as_owner=True
        )
        [accepted] = await reachable.inbound.accept([inbound])
        assert (await reachable.answer(accepted)).text.startswith("Write /web in a messenger")
    assert await links(reachable) == 0
