import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext

import pytest

from gateway.web.live import sse
from gateway.web.live.sse import MAX_FRAMES, EventStream, Frame, Ring


async def take(frames: AsyncGenerator[Frame, None], count: int) -> list[Frame]:
    return [await anext(frames) for _ in range(count)]


async def test_a_viewer_gets_the_whole_and_then_what_comes():
    ring = Ring(lambda: "whole")
    async with aclosing(ring.follow(None)) as viewer:
        [first] = await take(viewer, 1)
        ring.publish("a")
        ring.publish("b")
        assert [first.data, *[frame.data for frame in await take(viewer, 2)]] == ["whole", "a", "b"]


async def test_a_viewer_that_comes_back_gets_what_it_missed():
    ring = Ring(lambda: "whole")
    async with aclosing(ring.follow(None)) as viewer:
        last = (await take(viewer, 1))[0].id
    ring.publish("a")
    ring.publish("b")
    async with aclosing(ring.follow(last)) as viewer:
        assert [frame.data for frame in await take(viewer, 2)] == ["a", "b"]


@pytest.mark.parametrize("last", ["", "x", "other:0", ":", "{boot}:99", "{boot}:-1", "{boot}:²"])
async def test_an_unknown_place_means_the_whole(last: str):
    ring = Ring(lambda: "whole")
    async with aclosing(ring.follow(None)) as viewer:
        boot = (await take(viewer, 1))[0].id.partition(":")[0]
    async with aclosing(ring.follow(last.format(boot=boot))) as viewer:
        assert (await take(viewer, 1))[0].data == "whole"


async def test_a_viewer_that_missed_too_much_gets_the_whole():
    ring = Ring(lambda: "whole")
    async with aclosing(ring.follow(None)) as viewer:
        await take(viewer, 1)
        for n in range(MAX_FRAMES + 1):
            ring.publish(str(n))
        assert (await take(viewer, 1))[0].data == "whole"
        ring.publish("next")
        assert (await take(viewer, 1))[0].data == "next"


async def test_an_ended_ring_sends_its_viewers_away():
    ring = Ring(lambda: "whole")
    async with aclosing(ring.follow(None)) as viewer:
        await take(viewer, 1)
        assert ring.viewers == 1
        ring.end()
        assert [frame async for frame in viewer] == []
    assert ring.viewers == 0


def test_a_frame_keeps_its_lines():
    assert Frame("a\nb", "name", "7").encode() == b"event: name\ndata: a\ndata: b\nid: 7\n\n"


async def test_a_silent_stream_shows_that_it_is_alive(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sse, "PING_SECONDS", 0.0)
    stopping = asyncio.Event()

    async def silent() -> AsyncGenerator[Frame, None]:
        await asyncio.Event().wait()
        yield Frame("never")

    async with aclosing(EventStream(silent(), nullcontext(stopping)).body_iterator) as body:
        assert await anext(body) == b": alive\n\n"
        stopping.set()
        assert b"never" not in [line async for line in body]
