"""A TCP proxy that can be told to misbehave while it runs, between the gateway and whatever it talks to."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeAlias
from urllib.parse import parse_qs, urlsplit

CHUNK = 64 * 1024
Upstream: TypeAlias = Path | tuple[str, int]
"""A Unix socket, or a host and a port."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How bytes travel one way: late, in small pieces, at so many bytes a second, every n-th of them flipped."""

    delay: float = 0.0
    piece: int = CHUNK
    rate: float = 0.0
    flip_every: int = 0


@dataclass(slots=True)
class Trap:
    """Reset a connection when the client sends `words`: `before` they arrive, or `after`, so that no answer comes."""

    words: bytes
    when: Literal["before", "after"]
    times: int
    sprung: int = 0

    def catches(self, sent: bytes) -> bool:
        if self.sprung >= self.times or self.words not in sent:
            return False
        self.sprung += 1
        return True


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a server or a pooler says before it closes: to each login, or to whoever sends `words`."""

    state: str
    text: str
    words: bytes = b""

    @property
    def response(self) -> bytes:
        fields = {"S": "FATAL", "V": "FATAL", "C": self.state, "M": self.text}
        body = b"".join(f"{kind}{value}\0".encode() for kind, value in fields.items()) + b"\0"
        return b"E" + struct.pack("!i", len(body) + 4) + body


class Proxy:
    """Listens on 127.0.0.1 and forwards to `upstream`; `there` and `back` may be changed at any time."""

    def __init__(self, upstream: Upstream) -> None:
        self.there = Weather()
        self.back = Weather()
        self.trap: Trap | None = None
        self.refusal: Refusal | None = None
        self.connections = 0
        self.port = 0
        self._upstream = upstream
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._links: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()

    # --- what it can be told ---

    async def listen(self) -> None:
        """Take connections, after `refuse` on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Take no connections and cut those there are, as if nothing listened."""
        if self._server is not None:
            self._server.close()
        self._server = None
        self.reset()
        await asyncio.gather(*self._links, return_exceptions=True)

    def drop(self) -> None:
        """Close every connection in good order."""
        for task, writers in self._links.items():
            for writer in writers:
                writer.close()
            task.cancel()

    def reset(self) -> None:
        """Break every connection off with a RST."""
        for task, writers in self._links.items():
            for writer in writers:
                _abort(writer)
            task.cancel()

    def freeze(self) -> None:
        """Half open: connections stay and are taken, and nothing passes any more."""
        self._flowing.clear()

    def thaw(self) -> None:
        """What was held back passes."""
        self._flowing.set()

    def calm(self) -> None:
        """No fault any longer; what was closed stays closed."""
        self.there = self.back = Weather()
        self.trap = self.refusal = None
        self.thaw()

    @property
    def open(self) -> int:
        """How many connections there are now."""
        return len(self._links)

    # --- how it works ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections += 1
        self._links[task] = [writer]
        try:
            with suppress(OSError):
                await self._link(task, reader, writer)
        except asyncio.CancelledError:
            pass  # told to: whoever cancelled has closed the sockets
        finally:
            for each in self._links.pop(task):
                each.close()

    async def _link(self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusal is not None and not self.refusal.words:
            await reader.read(CHUNK)
            await _refuse(writer, self.refusal)
            return
        if isinstance(self._upstream, Path):
            far_reader, far_writer = await asyncio.open_unix_connection(str(self._upstream), limit=CHUNK)
        else:
            far_reader, far_writer = await asyncio.open_connection(*self._upstream, limit=CHUNK)
        self._links[task].append(far_writer)
        mute = asyncio.Event()
        flows = [
            asyncio.create_task(self._flow(reader, far_writer, mute, there=True, refused=writer)),
            asyncio.create_task(self._flow(far_reader, writer, mute, there=False)),
        ]
        try:
            await asyncio.wait(flows, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for flow in flows:
                flow.cancel()
            await asyncio.gather(*flows, return_exceptions=True)
            for each in (writer, far_writer) if any(_was_reset(flow) for flow in flows) else ():
                _abort(each)

    async def _flow(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        mute: asyncio.Event,
        *,
        there: bool,
        refused: asyncio.StreamWriter | None = None,
    ) -> None:
        passed = 0
        while sent := await reader.read(CHUNK):
            if refused and self.refusal and self.refusal.words and self.refusal.words in sent:
                await _refuse(refused, self.refusal)
                break
            weather = self.there if there else self.back
            caught = self.trap if there and self.trap is not None and self.trap.catches(sent) else None
            if caught is not None:
                mute.set()
                if caught.when == "before":
                    raise ConnectionResetError
            if mute.is_set() and not there:
                continue
            if weather.delay:
                await asyncio.sleep(weather.delay)
            for start in range(0, len(sent), weather.piece):
                piece = _flipped(sent[start : start + weather.piece], passed, weather.flip_every)
                passed += len(piece)
                await self._flowing.wait()
                writer.write(piece)
                await writer.drain()
                if weather.rate:
                    await asyncio.sleep(len(piece) / weather.rate)
                elif weather.piece < CHUNK:
                    await asyncio.sleep(0)
            if caught is not None:
                await asyncio.sleep(0.05)  # what was asked for is done before the connection breaks
                raise ConnectionResetError


def postgres_behind(dsn: str) -> Path:
    """The socket of a server that is addressed by its folder."""
    return Path(parse_qs(urlsplit(dsn).query)["host"][0]) / ".s.PGSQL.5432"


def through(dsn: str, proxy: Proxy) -> str:
    """The same database, reached over the proxy."""
    parts = urlsplit(dsn)
    login = parts.netloc.rpartition("@")[0]
    return f"postgresql://{login}@127.0.0.1:{proxy.port}{parts.path}?sslmode=disable"


@asynccontextmanager
async def before_postgres(dsn: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the database at `dsn`, and the address that leads through it."""
    async with Proxy(postgres_behind(dsn)) as proxy:
        yield proxy, through(dsn, proxy)


async def _refuse(writer: asyncio.StreamWriter, refusal: Refusal) -> None:
    writer.write(refusal.response)
    await writer.drain()


def _was_reset(flow: asyncio.Task[None]) -> bool:
    return flow.done() and not flow.cancelled() and isinstance(flow.exception(), ConnectionResetError)


def _abort(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with suppress(OSError):
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _flipped(piece: bytes, passed: int, every: int) -> bytes:
    """Every so many bytes of the whole stream, one has its lowest bit turned over."""
    if not every:
        return piece
    turned = bytearray(piece)
    for place in range(-passed % every, len(piece), every):
        turned[place] ^= 1
    return bytes(turned)
