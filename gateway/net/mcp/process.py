"""A server in the jail, over its standard input and output. Imports the official client's types, so: in a thread."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from anyio import create_memory_object_stream, create_task_group
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.shared.message import SessionMessage

from gateway.domain.text.texts import one_line
from gateway.net.errors import NetError
from gateway.net.mcp.server import ServerError
from gateway.sandbox.command import Ending
from gateway.sandbox.workshop import Running

MAX_BAD_LINES = 100
"""Lines that aren't messages: some servers write their log there."""
_MAX_ERRORS_BYTES = 2_000
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


@asynccontextmanager
async def process_streams(name: str, launch: Callable[[], Awaitable[Running]], longest: int) -> AsyncIterator[Streams]:
    """Start a server, and end it and all it started afterwards. `longest`: bytes of a message, in either direction."""
    running = await launch()
    arriving, read = create_memory_object_stream[SessionMessage | Exception](0)
    write, leaving = create_memory_object_stream[SessionMessage](0)
    process = _Process(name, running, longest)
    try:
        async with create_task_group() as group, arriving, read, write, leaving:
            group.start_soon(process.drain)
            group.start_soon(process.receive, arriving)
            group.start_soon(process.send, leaving)
            yield read, write
            group.cancel_scope.cancel()
    finally:
        running.close()


class _Process:
    def __init__(self, name: str, running: Running, longest: int) -> None:
        self._name, self._running, self._longest, self._errors = name, running, longest, b""

    async def drain(self) -> None:
        """Keep the end of its standard error."""
        assert self._running.errors is not None, "standard error has a pipe of its own"
        while piece := await self._running.errors.read(_MAX_ERRORS_BYTES):
            self._errors = (self._errors + piece)[-_MAX_ERRORS_BYTES:]

    async def receive(self, arriving: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Pass on its messages; raises `NetError` once it has ended, or if it sends something else."""
        line, bad = bytearray(), 0
        async for piece in self._running.pieces():
            *ended, rest = (bytes(line) + piece).split(b"\n") if b"\n" in piece else (piece,)
            if not ended:
                line += rest
            else:
                line = bytearray(rest)
            if len(line) > self._longest:
                raise NetError("too_large", f"{self._name} sends more than {self._longest >> 20} MB at once.")
            for each in filter(None, ended):
                try:
                    message = types.jsonrpc_message_adapter.validate_json(each, by_name=False)
                except ValueError:
                    if (bad := bad + 1) > MAX_BAD_LINES:
                        raise NetError("bad_answer", f"{self._name} did not answer as an MCP server does.") from None
                    continue
                await arriving.send(SessionMessage(message))
        raise await self._end()

    async def send(self, leaving: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Pass on our messages."""
        pipe = self._running.input
        assert pipe is not None, "it has one"
        async for each in leaving:
            body = each.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            if pipe.get_write_buffer_size() + len(body) > self._longest:
                raise NetError("not_read", f"{self._name} does not read what it is sent.")
            pipe.write(body + b"\n")

    async def _end(self) -> NetError:
        report = await self._running.report()
        await asyncio.sleep(0)  # `drain` reads the rest
        if report.ending is Ending.REFUSED:
            return NetError("not_started", f"{self._name} did not start: {report.problem}.")
        how = f"with code {report.code}" if report.ending is Ending.EXITED else f"({report.ending})"
        if errors := one_line(self._errors.decode("utf-8", "replace").strip()[-300:], 300):
            return ServerError("ended", f"{self._name} ended {how}: {errors}")
        return NetError("ended", f"{self._name} ended {how}.")
