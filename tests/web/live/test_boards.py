import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing

import pytest

from gateway.domain.errors import DatabaseDown
from gateway.web.live import sse
from gateway.web.live.sse import Boards, Frame
from tests.fakes.eventually import eventually
from tests.web.conftest import Running


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "POLL_SECONDS", 0)


async def patches(frames: AsyncGenerator[Frame, None]) -> list[list[str]]:
    shown: list[list[str]] = json.loads((await anext(frames)).data)
    return shown


class Counter:
    """A board whose only piece is the number of its drawings."""

    def __init__(self) -> None:
        self.drawings = 0

    async def draw(self) -> Mapping[str, str]:
        self.drawings += 1
        return {"empty": f"{self.drawings}"}


async def test_an_outage_changes_nothing_and_what_changed_meanwhile_comes_after_it():
    drawn: list[Mapping[str, str] | None] = [
        None,
        {"empty": "<i id=empty>", "a": "<i id=a>1"},
        None,
        {"empty": "<i id=empty>", "a": "<i id=a>1"},
        {"empty": "<i id=empty>", "a": "<i id=a>2", "b": "<i id=b>"},
        {"empty": "<i id=empty>"},
    ]

    async def draw() -> Mapping[str, str]:
        now = drawn.pop(0)
        if now is None:
            raise DatabaseDown("gone")
        return now

    async with aclosing(Boards().follow("a board", draw)) as frames:
        seen = [await patches(frames) for _ in range(3)]
    assert seen == [
        [["fill", "board", "<i id=empty><i id=a>1"]],
        [["replace", "a", "<i id=a>2"], ["insert", "a", "<i id=b>"]],
        [["remove", "a", ""], ["remove", "b", ""]],
    ]


async def test_all_viewers_of_a_board_share_its_drawings_and_another_board_has_its_own():
    shared, other, open_ = Counter(), Counter(), Boards()
    async with AsyncExitStack() as stack:
        viewers = [await stack.enter_async_context(aclosing(open_.follow("one", shared.draw))) for _ in range(3)]
        alone = await stack.enter_async_context(aclosing(open_.follow("two", other.draw)))
        for drawing in (1, 2, 3):
            for viewer in viewers:
                assert (await patches(viewer))[0][2] == f"{drawing}"
            assert shared.drawings == drawing
        await patches(alone)
        assert (shared.drawings, other.drawings) == (3, 1)


async def test_a_viewer_who_leaves_while_drawing_leaves_the_drawing_to_the_next():
    begun, open_ = asyncio.Event(), Boards()

    async def draw() -> Mapping[str, str]:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return {"empty": "drawn"}

    first, second = open_.follow("one", draw), open_.follow("one", draw)
    leaving = asyncio.ensure_future(anext(first))
    await begun.wait()
    waiting = asyncio.ensure_future(anext(second))
    leaving.cancel()
    await asyncio.wait({leaving})
    assert json.loads((await waiting).data) == [["fill", "board", "drawn"]]
    await second.aclose()


async def test_a_notification_redraws_before_the_next_poll(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sse, "POLL_SECONDS", 3600)
    counter, open_ = Counter(), Boards()
    async with aclosing(open_.follow("one", counter.draw)) as frames:
        await patches(frames)
        open_.wake()
        assert await patches(frames) == [["replace", "empty", "2"]]


async def test_browsers_share_the_reads_of_a_screen_and_nothing_is_read_once_they_are_gone(
    running: Running, monkeypatch: pytest.MonkeyPatch
):
    reads = 0

    def states() -> Mapping[str, str]:
        nonlocal reads
        reads += 1
        return {f"channel {reads}": "open"}

    started = await running.start(states=states)
    async with started.web.sign_in() as browser:
        monkeypatch.setattr(sse, "POLL_SECONDS", 3600)
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(browser.stream("GET", "/channels/events")) for _ in range(3)]
            lines = [stream.aiter_lines() for stream in streams]
            assert all(["channel 1" in await anext(each) for each in lines])
        monkeypatch.setattr(sse, "POLL_SECONDS", 0)
        async with browser.stream("GET", "/channels/events") as stream:
            following = stream.aiter_lines()
            assert all([await anext(following) is not None for _ in range(10)])
        before = -1

        def nothing_is_read() -> bool:
            nonlocal before
            unchanged, before = before == reads, reads
            return unchanged

        await eventually(nothing_is_read)
    await started.stop()
