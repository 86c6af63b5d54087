"""A server in the jail, over its standard input and output. Imports the official client's types, so: in a thread."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from anyio import create_memory_object_stream, create_task_group
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.client._transport import TransportStreams as Streams
from mcp.shared.message import SessionMessage

from gateway.domain.text.texts import one_line
from gateway.net.errors import NetError
from gateway.sandbox.command import Ending
from gateway.sandbox.workshop import Running

MAX_BAD_LINES = 100
"""Lines that aren't messages: some servers write their log there."""
_MAX_ERRORS_BYTES = 2_000


@asynccontextmanager
async def process_streams(name: str, launch: Callable[[], Awaitable[Running]], longest: int) -> AsyncIterator[Streams]:
    """Start a server, and end it and all it started afterwards. `longest`: bytes of a message, in either direction."""
    running = await launch()
    arriving, read = create_memory_object_stream[SessionMessage | Exception](0)
    write, leaving = create_memory_object_stream[SessionMessage](0)
    errors = asyncio.create_task(running.last_errors(_MAX_ERRORS_BYTES))
    process = _Process(name, running, longest, errors)
    try:
        async with create_task_group() as group, arriving, read, write, leaving:
            group.start_soon(process.receive, arriving)
            group.start_soon(process.send, leaving)
            yield read, write
            group.cancel_scope.cancel()
    finally:
        errors.cancel()
        running.close()


class _Process:
    def __init__(self, name: str, running: Running, longest: int, errors: asyncio.Task[bytes]) -> None:
        self.name, self.running, self.longest, self.errors = name, running, longest, errors

    async def receive(self, arriving: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Pass on its messages; raises `NetError` once it has ended, or if it sends something else."""
        line, bad = bytearray(), 0
        async for piece in self.running.pieces():
            line += piece
            *ended, line = line.split(b"\n") if b"\n" in piece else [line]
            if len(line) > self.longest:
                raise NetError("too_large", f"{self.name} sends more than {self.longest >> 20} MB at once.")
            for each in filter(None, ended):
                try:
                    message = types.jsonrpc_message_adapter.validate_json(each, by_name=False)
                except ValueError:
                    if (bad := bad + 1) > MAX_BAD_LINES:
                        raise NetError("bad_answer", f"{self.name} did not answer as an MCP server does.") from None
                    continue
                await arriving.send(SessionMessage(message))
        raise await self._end()

    async def send(self, leaving: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Pass on our messages."""
        pipe = self.running.input
        assert pipe is not None, "it has one"
        async for each in leaving:
            body = each.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            if pipe.get_write_buffer_size() + len(body) > self.longest:
                raise NetError("not_read", f"{self.name} does not read what it is sent.")
            pipe.write(body + b"\n")

    async def _end(self) -> NetError:
        report = await self.running.report()
        if report.ending is Ending.REFUSED:
            return NetError("not_started", f"{self.name} did not start: {report.problem}.")
        how = f"with code {report.code}" if report.ending is Ending.EXITED else f"({report.ending})"
        errors = await self.errors
        if said := one_line(errors.decode("utf-8", "replace").strip()[-300:], 300):
            return NetError("ended", f"{self.name} ended {how}: {said}", foreign=True)
        return NetError("ended", f"{self.name} ended {how}.")
