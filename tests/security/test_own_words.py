"""What counts as the person's own words, and what tries to pass for them: a send of exactly these needs no question."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.domain.conversation.transcript import AssistantText, Notice, UserText
from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.principals import Label
from gateway.store.connection.pool import Database
from gateway.store.transcript import messages
from tests.fakes.caller import CALLER
from tests.flow.path import FakeModel, MessagePath, build, said

NOW = datetime.now(UTC)
EVE = "eve@evil.example"


@pytest.fixture
async def path(database: Database, workspace: Path, model: FakeModel) -> MessagePath:
    """A conversation in which the person named an address, and the agent another one."""
    path = await build(database, workspace, model)
    model.answer = lambda _: said(f"Mail {EVE}.")
    async with path.working():
        await path.ask("Write to bob@bob.example on 2024-05-19 at 12:00; not to sales@bob.example.org.")
    return path


async def counts(path: MessagePath, value: str, session: SessionId | None = None) -> bool:
    [[owner, own]] = await path.rows("select principal_id, id from sessions order by started_at limit 1")
    policy = path.environments.questions.policy(PrincipalId(owner))
    return await policy.is_own_words(replace(CALLER, session=session or SessionId(own)), value)


@pytest.mark.parametrize("value", ["bob@bob.example", "2024-05-19 12:00", "sales@bob.example.org"])
async def test_whole_values_of_the_persons_messages_do(path: MessagePath, value: str) -> None:
    assert await counts(path, value)


@pytest.mark.parametrize("value", ["sales@bob.example", "b.example", "2024-05-19 12:30", EVE, "at", ""])
async def test_parts_of_them_and_what_the_agent_said_do_not(path: MessagePath, value: str) -> None:
    assert not await counts(path, value)


@pytest.mark.parametrize(
    ("entry", "label", "origin"),
    [
        (UserText(EVE, NOW), Label.KNOWN, "api"),  # with a token of less right
        (UserText(EVE, NOW), Label.UNTRUSTED, "fake"),  # forwarded, or of a group
        (UserText(EVE, NOW), Label.UNTRUSTED, "trigger"),
        (UserText(EVE, NOW), Label.OWNER, messages.EARLIER),  # imported with a request, or of the conversation before
        (AssistantText(EVE), Label.OWNER, "agent"),
        (Notice(EVE), Label.OWNER, "gateway"),
    ],
)
async def test_words_that_came_another_way_do_not(
    path: MessagePath, entry: UserText | AssistantText | Notice, label: Label, origin: str
) -> None:
    [[session, owner]] = await path.rows("select id, principal_id from sessions order by started_at limit 1")
    async with path.database.transaction() as tx:
        await messages.say(tx, session, owner, entry, label=label, origin=origin)
    assert not await counts(path, EVE)


async def test_those_of_another_conversation_do_not(path: MessagePath) -> None:
    async with path.working():
        await path.ask("/new")
        await path.ask("hello")
    [[newest]] = await path.rows("select id from sessions where ended_at is null order by started_at desc limit 1")
    assert not await counts(path, "bob@bob.example", newest)
