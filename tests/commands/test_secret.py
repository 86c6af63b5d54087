"""The form that /secret sends: to whom, by whom, for whom."""

from pathlib import Path

import pytest

from gateway.store.pool import Database
from tests.flow.path import MEMBER, FakeModel, MessagePath, build

PUBLIC = "https://claw.example.org"
VALUE = "hush-hush-hush"


@pytest.fixture
async def reachable(database: Database, workspace: Path) -> MessagePath:
    """A gateway whose page has a public address."""
    path = await build(database, workspace, FakeModel())
    path.public_url = PUBLIC
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
    assert reachable.secret_links.redeem(secret, now) == (member, "MAIL_PASSWORD")
    assert reachable.secret_links.redeem(secret, now) is None
    assert await reachable.rows("select from messages where text like '%#t=%'") == []


async def test_a_value_beside_the_name_is_not_taken(reachable: MessagePath) -> None:
    answer = await reachable.ask(f"/secret MAIL_PASSWORD {VALUE}")
    assert answer.startswith("Write /secret NAME")
    assert await reachable.rows("select from secrets") == []


async def test_without_a_public_address_it_says_how(path: MessagePath) -> None:
    assert "web.public_url" in await path.ask("/secret MAIL_PASSWORD", sender=MEMBER, chat=MEMBER)
