"""Conversations being viewed: one task renders each, once for all its viewers."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import structlog

from gateway.domain.conversation.inbound import Address
from gateway.domain.errors import TryAgainLater
from gateway.web.live.follow import Conversations, Snapshot, Update
from gateway.web.live.patches import Patch, encoded
from gateway.web.live.sse import Frame, Ring
from gateway.web.live.thread import Thread

FRAME_SECONDS = 0.05
LINGER_SECONDS = 60.0

log = structlog.get_logger(__name__)


class _Topic:
    """One conversation with viewers."""

    def __init__(self, address: Address, thread: Thread, conversations: Conversations) -> None:
        self._address = address
        self._thread = thread
        self._conversations = conversations
        self._snapshot: Snapshot | None = None
        self.ring = Ring(lambda: encoded(thread.whole()))
        self.drawn = asyncio.Event()

    async def run(self) -> None:
        """Render updates until there have been no viewers for a while."""
        async with aclosing(self._conversations.follow(self._address, pace=FRAME_SECONDS)) as updates:
            next_update = asyncio.ensure_future(anext(updates))
            clock = asyncio.get_running_loop().time
            looked_at = clock()
            try:
                while self.ring.viewers or clock() - looked_at < LINGER_SECONDS:
                    looked_at = clock() if self.ring.viewers else looked_at
                    done, _ = await asyncio.wait({next_update}, timeout=LINGER_SECONDS)
                    if done:
                        self._publish(await self._draw(next_update.result()))
                        next_update = asyncio.ensure_future(anext(updates))
            finally:
                next_update.cancel()
                await asyncio.gather(next_update, return_exceptions=True)

    def _publish(self, patches: list[Patch]) -> None:
        if patches and self.drawn.is_set():
            self.ring.publish(encoded(patches))
        self.drawn.set()

    async def _draw(self, update: Update) -> list[Patch]:
        if isinstance(update, Snapshot):
            self._snapshot = update
            self._thread.resume(update.written)
            return await self._thread.draw(update.rows)
        again = [self._thread.apply(event) for event in update]
        if not any(again) or self._snapshot is None or self._snapshot.session is None:
            return await self._thread.draw(None)
        self._snapshot = await self._conversations.snapshot(self._snapshot.session)
        return await self._thread.draw(self._snapshot.rows)


class Topics:
    """The open topics, by address. A failing topic does not affect the others."""

    def __init__(self, conversations: Conversations, thread: Callable[[], Thread]) -> None:
        self._conversations = conversations
        self._thread = thread
        self._open: dict[Address, tuple[_Topic, asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def serve(self, stopping: asyncio.Event) -> None:
        """Run the topics until `stopping` is set; `follow` yields nothing before or after."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            await stopping.wait()
            self._group = None
            for topic, task in self._open.values():
                topic.ring.end()
                task.cancel()

    async def follow(self, address: Address, last_id: str | None) -> AsyncGenerator[Frame, None]:
        """Frames for one viewer."""
        if self._group is None:
            return
        topic, task = self._open.get(address) or self._begin(address, self._group)
        drawn = asyncio.ensure_future(topic.drawn.wait())
        await asyncio.wait({drawn, task}, return_when=asyncio.FIRST_COMPLETED)
        if not drawn.done():
            drawn.cancel()
            return
        async with aclosing(topic.ring.follow(last_id)) as frames:
            async for frame in frames:
                yield frame

    def _begin(self, address: Address, group: asyncio.TaskGroup) -> tuple[_Topic, asyncio.Task[None]]:
        topic = _Topic(address, self._thread(), self._conversations)
        task = group.create_task(self._run(address, topic), name=f"topic {address.channel} {address.chat}")
        self._open[address] = (topic, task)
        return self._open[address]

    async def _run(self, address: Address, topic: _Topic) -> None:
        try:
            await topic.run()
        except TryAgainLater as exc:
            log.warning("web.topic_waits", channel=address.channel, error=str(exc))
        except Exception:  # its viewers reconnect by themselves
            log.exception("web.topic_broken", channel=address.channel)
        finally:
            topic.ring.end()
            del self._open[address]
