import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from markupsafe import Markup

from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.errors import DatabaseDown
from gateway.domain.ids import SessionId
from gateway.domain.principals import Label
from gateway.store.trust.reviews import ReviewRow
from gateway.web.live import topics
from gateway.web.live.conversations import Conversations, Snapshot, Update
from gateway.web.live.sse import Frame
from gateway.web.live.topics import Thread, Topics
from gateway.web.markup.markdown import Markdown
from gateway.web.pages import Pages
from tests.web.test_thread import row

HERE = Address("web", "owner", "main")
QUESTION: dict[str, Any] = {
    "id": 1,
    "kind": "approval",
    "tool": "send",
    "arguments": {},
    "preview": "To Eve: hello",
    "state": "open",
    "label": Label.OWNER,
    "act": ToolClass.SEND,
    "created_at": datetime(2026, 3, 1, tzinfo=UTC),
}


class Told(Conversations):
    """A conversation in which happens what a test says, or which cannot be read."""

    def __init__(self, problem: Exception | None = None, answered: Snapshot | None = None) -> None:
        self.news: asyncio.Queue[Update] = asyncio.Queue()
        self.problem, self.answered = problem, answered

    async def snapshot(self, session: SessionId) -> Snapshot:
        assert self.answered is not None
        return self.answered

    async def follow(self, address: Address, *, pace: float = 0.0) -> AsyncGenerator[Update, None]:
        if self.problem:
            raise self.problem
        yield Snapshot(None, (), None)
        while True:
            yield await self.news.get()


@pytest.fixture
async def stopping() -> asyncio.Event:
    return asyncio.Event()


def topics_on(conversations: Conversations) -> Topics:
    return Topics(conversations, lambda: Thread(Pages(), Markdown(), Markup("<p>hello</p>")))


async def test_one_drawing_serves_all_viewers(stopping: asyncio.Event):
    told = Told()
    open_topics = topics_on(told)
    async with asyncio.TaskGroup() as group:
        group.create_task(open_topics.serve(stopping))
        await asyncio.sleep(0)
        async with aclosing(open_topics.follow(HERE, None)) as one, aclosing(open_topics.follow(HERE, None)) as two:
            first = [await anext(one), await anext(two)]
            told.news.put_nowait(Snapshot(None, (), "writing"))
            second = [await anext(one), await anext(two)]
        stopping.set()
    assert first[0] == first[1]
    assert second[0] is second[1]
    assert ["running", True, ""] in json.loads(second[0].data)


async def test_a_card_disappears_when_its_question_is_answered_elsewhere(
    stopping: asyncio.Event, monkeypatch: pytest.MonkeyPatch
):
    """No event of the conversation tells of it."""
    monkeypatch.setattr(topics, "ANSWERED_SECONDS", 0.01)
    question = ReviewRow(**{field.name: None for field in fields(ReviewRow)} | QUESTION)
    session, notice = SessionId(uuid4()), row(1, "notice", "**A1: may I make this change?** (send)")
    told, owner = Told(answered=Snapshot(session, (notice,), None)), "Ada"
    made = Topics(told, lambda: Thread(Pages(), Markdown(), Markup(owner), acts=True))
    async with asyncio.TaskGroup() as group:
        group.create_task(made.serve(stopping))
        await asyncio.sleep(0)
        async with aclosing(made.follow(HERE, None)) as viewer:
            await anext(viewer)
            told.news.put_nowait(Snapshot(session, (notice,), None, questions=(question,)))
            asking, answered = (await anext(viewer)).data, (await anext(viewer)).data
        stopping.set()
    assert "/approvals/A1/" in asking
    assert json.loads(answered)[0][:2] == ["replace", "m1"]
    assert "/approvals/A1/" not in answered


@pytest.mark.parametrize("problem", [DatabaseDown("no connection"), RuntimeError("a defect")])
async def test_a_conversation_that_cannot_be_read_sends_its_viewers_away(stopping: asyncio.Event, problem: Exception):
    open_topics = topics_on(Told(problem))
    async with asyncio.TaskGroup() as group:
        group.create_task(open_topics.serve(stopping))
        await asyncio.sleep(0)
        assert [frame async for frame in open_topics.follow(HERE, None)] == []
        stopping.set()


async def test_nobody_looking_for_long_ends_the_drawing(stopping: asyncio.Event, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(topics, "LINGER_SECONDS", 0.001)
    open_topics = topics_on(Told())
    ids = []
    async with asyncio.TaskGroup() as group:
        group.create_task(open_topics.serve(stopping))
        await asyncio.sleep(0)
        for _ in range(2):
            async with aclosing(open_topics.follow(HERE, None)) as viewer:
                ids.append((await anext(viewer)).id)
            _, drawing = open_topics._open[HERE]
            await drawing
        stopping.set()
    assert ids[0] != ids[1]


async def test_stopping_sends_the_viewers_away(stopping: asyncio.Event):
    open_topics = topics_on(Told())
    frames: list[Frame] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(open_topics.serve(stopping))
        await asyncio.sleep(0)
        async for frame in open_topics.follow(HERE, None):
            frames.append(frame)
            stopping.set()
    assert len(frames) == 1
    assert [frame async for frame in open_topics.follow(HERE, None)] == []


class Silent(Conversations):
    """A conversation that is never read to its first row."""

    def __init__(self) -> None:
        pass

    async def follow(self, address: Address, *, pace: float = 0.0) -> AsyncGenerator[Update, None]:
        await asyncio.Event().wait()
        yield Snapshot(None, (), None)


async def test_a_viewer_who_leaves_before_the_first_drawing_leaves_nothing_waiting(stopping: asyncio.Event):
    open_topics = topics_on(Silent())
    async with asyncio.TaskGroup() as group:
        group.create_task(open_topics.serve(stopping))
        await asyncio.sleep(0)
        before = asyncio.all_tasks()
        viewer = asyncio.create_task(anext(open_topics.follow(HERE, None)))
        await asyncio.sleep(0.01)
        viewer.cancel()
        await asyncio.wait({viewer})
        await asyncio.sleep(0)
        _, drawing = open_topics._open[HERE]
        assert {task for task in asyncio.all_tasks() - before if "Event.wait" in repr(task.get_coro())} == set()
        assert not drawing.done()
        stopping.set()
