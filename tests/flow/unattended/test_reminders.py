"""Reminders from the words of a person to the chat again, without any model."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.agent.work.schedules import Schedules
from gateway.config.machine import SystemClock
from gateway.domain.conversation.model import ModelEvent, Prompt, Reply, Usage
from gateway.domain.settings import Params
from gateway.llm.provider import ProviderReply
from gateway.llm.providers.guide import build as guide
from gateway.llm.vendors import Endpoint, vendor
from gateway.store.connection.pool import Database
from tests.flow.path import MEMBER, FakeModel, MessagePath, build


class Guided(FakeModel):
    """The guide in the place of a model."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        self.prompts.append(prompt)
        async for event in guide(Endpoint(vendor("guide"))).stream("guide", prompt, Params()):
            if isinstance(event, ProviderReply):
                yield Reply(event.text, event.calls, Usage(), "guide", 1)


@pytest.fixture
async def path(database: Database, workspace: Path) -> MessagePath:
    return await build(database, workspace, Guided())


async def test_a_reminder_is_noted_and_comes_back_where_it_was_asked_for(path: MessagePath) -> None:
    async with path.working():
        noted = await path.ask("remind me in 20 minutes to call mum")
        assert noted.startswith("Noted: call mum, at ")
        assert noted.endswith(" UTC, in 20 minutes.")
        [(said_at, due)] = await path.rows(
            "select m.sent_at, s.next_run_at from messages m, schedules s where m.kind = 'user'"
        )
        assert due == said_at.replace(microsecond=0) + timedelta(minutes=20)
        assert "- 1: call mum, at " in await path.ask("my reminders")
        async with path.database.transaction() as tx:
            await Schedules(tx, path.people.owner.id, SystemClock().now(), most=None).run("1")
        await path.channel.until(lambda texts: "Reminder: call mum" in texts)
    [(executed, produced, failed)] = await path.rows("select executed_at, produced_at, error from schedule_runs")
    assert (executed is not None, produced is not None, failed) == (True, True, None)


async def test_a_member_is_reminded_too_and_of_nothing_else(path: MessagePath) -> None:
    async with path.working():
        await path.ask("every day at 8:30 feed the owner's cat")
        assert "I used UTC" in await path.ask("remind me tomorrow at 9 to call mum", sender=MEMBER, chat=MEMBER)
        assert "in 20 minutes." in await path.ask("remind me in 20 minutes to eat", sender=MEMBER, chat=MEMBER)
        assert "cat" not in await path.ask("my reminders", sender=MEMBER, chat=MEMBER)
