"""The form that /secret sends: to whom, by whom, for whom."""

from pathlib import Path
from urllib.parse import unquote

import pytest

from gateway.domain.principals import Label
from gateway.ingest.output import LOCKED
from gateway.secrets.facts import Binding
from gateway.store.connection.pool import Database
from gateway.store.files import files
from tests.flow.path import MEMBER, FakeModel, MessagePath, build

PUBLIC = "https://claw.example.org"
VALUE = "hush-hush-hush"


@pytest.fixture
async def reachable(database: Database, workspace: Path) -> MessagePath:
    """A gateway whose page has a public address."""
    path = await build(database, workspace, FakeModel())
    path.page_links.public_url = PUBLIC
    return path


async def test_a_member_gets_a_form_of_their_own_that_works_once(reachable: MessagePath) -> None:
    async with reachable.working():
        answer = await reachable.ask("/secret MAIL_PASSWORD", sender=MEMBER, chat=MEMBER)
        await reachable.channel.until(lambda texts: any("#t=" in text for text in texts))
    assert "It works once, for ten minutes" in answer
    [sent] = [each.text for each in reachable.channel.shown if "#t=" in each.text]
    secret, _, name = sent.partition(f"{PUBLIC}/secret#t=")[2].partition("&name=")
    assert name == "MAIL_PASSWORD"
    [(member,)] = await reachable.rows("select id from principals where role = 'member'")
    now = reachable.clock.now()
    assert reachable.page_links.secrets.redeem(secret, now) == (member, "MAIL_PASSWORD")
    assert reachable.page_links.secrets.redeem(secret, now) is None
    assert await reachable.rows("select from messages where text like '%#t=%'") == []


async def test_a_member_gets_a_form_for_the_password_of_their_own_file(reachable: MessagePath) -> None:
    path, mine = "uploads/2026-11-28/rent 1.pdf", {"sender": MEMBER, "chat": MEMBER}
    async with reachable.working():
        await reachable.ask("hello", **mine)
        [(member,)] = await reachable.rows("select id from principals where role = 'member'")
        async with reachable.database.connection() as conn:
            facts = {"size": 1, "mime": "", "sha256": "", "label": Label.UNTRUSTED, "origin": "fake"}
            await files.derived(conn, (await files.keep(conn, member, path, **facts)).id, problem=LOCKED)
        assert "Write /secret NAME" in await reachable.ask("/secret rent 1.pdf")
        assert "The password opens the file once" in await reachable.ask("/secret rent 1.pdf", **mine)
        await reachable.channel.until(lambda texts: any("#t=" in text for text in texts))
    [sent] = [each.text for each in reachable.channel.shown if "#t=" in each.text]
    secret, _, name = sent.partition(f"{PUBLIC}/secret#t=")[2].partition("&name=")
    assert unquote(name) == path
    assert reachable.page_links.secrets.redeem(secret, reachable.clock.now()) == (member, path)


async def test_a_value_beside_the_name_is_not_taken(reachable: MessagePath) -> None:
    answer = await reachable.ask(f"/secret MAIL_PASSWORD {VALUE}")
    assert answer.startswith("Write /secret NAME")
    assert await reachable.rows("select from secrets") == []


async def test_without_a_public_address_it_says_how(path: MessagePath) -> None:
    assert "web.public_url" in await path.ask("/secret MAIL_PASSWORD", sender=MEMBER, chat=MEMBER)


async def keep(path: MessagePath, whose: str, name: str, *, shared: bool = False) -> None:
    binding = Binding.of(["api.example.org"], ["weather"], "header:Authorization")
    [(id,)] = await path.rows("select id from principals where role = $1", whose)
    await path.secrets.vault.put(id, name, VALUE, shared=shared, binding=binding)


async def names(path: MessagePath) -> list[str]:
    return [name for (name,) in await path.rows("select name from secrets order by name")]


async def test_a_member_lists_and_deletes_their_own_only(path: MessagePath) -> None:
    member = {"sender": MEMBER, "chat": MEMBER}
    assert "You have stored no secrets" in await path.ask("/secrets", **member)
    await keep(path, "member", "MAIL")
    await keep(path, "owner", "OWNERS")
    await keep(path, "owner", "SHARED", shared=True)
    listed = await path.ask("/secrets", **member)
    assert "- MAIL: sent to https://api.example.org:443 by weather" in listed
    assert "OWNERS" not in listed
    assert "SHARED" not in listed
    assert VALUE not in listed
    for other in ("OWNERS", "SHARED", "NONE"):
        assert "You have no secret of that name" in await path.ask(f"/secrets rm {other}", **member)
    assert await path.ask("/secrets rm MAIL", **member) == "MAIL is deleted."
    assert await names(path) == ["OWNERS", "SHARED"]
    assert "- OWNERS" in await path.ask("/secrets")


async def test_a_group_is_told_nothing(path: MessagePath) -> None:
    await keep(path, "owner", "MAIL")
    for text in ("/secrets", "/secrets rm MAIL"):
        assert "in your private chat" in await path.ask(text, chat="-100", private=False)
    assert await names(path) == ["MAIL"]
