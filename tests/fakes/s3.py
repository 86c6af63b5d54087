"""moto's S3 in a process of its own, and a store that ignores conditions: a proxy in front that takes them out.

Supabase Storage is of the second kind. The proxy can also be down, or answer with what somebody put into the bucket.
"""

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from uuid import uuid4

import aiohttp
from aiohttp import web

from gateway.config.model import WorkspaceStore
from gateway.net.addresses import Rules
from gateway.net.object_store import ObjectStore, StoreAddress

CONDITIONS = {"if-match", "if-none-match", "if-modified-since", "if-unmodified-since"}
_HOPS = {"transfer-encoding", "connection", "content-length", "content-encoding", "host"}
_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def moto() -> Iterator[str]:
    """The address of a server that ends with the block, or with this process."""
    command = [sys.executable, "-c", _SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


def settings(endpoint: str, bucket: str, prefix: str = "home/files") -> WorkspaceStore:
    known = {"endpoint": endpoint, "access_key": "key", "secret_key": "secret"}
    return WorkspaceStore.model_validate({"url": f"s3://{bucket}/{prefix}", **known})


def store(endpoint: str, bucket: str, prefix: str = "home/files") -> ObjectStore:
    return ObjectStore(StoreAddress.of(settings(endpoint, bucket, prefix)), lambda: Rules.of(["127.0.0.1"]))


async def new_bucket(endpoint: str) -> str:
    name = f"files-{uuid4().hex}"
    async with aiohttp.ClientSession() as session, session.put(f"{endpoint}/{name}") as answer:
        assert answer.status == 200
    return name


@dataclass
class Careless:
    """Ignores conditions; `down`: answers 503. `answers` replaces an object's content, by the end of its path."""

    upstream: str
    down: bool = False
    answers: dict[str, bytes] = field(default_factory=dict)
    redirect: str | None = None
    asked: list[str] = field(default_factory=list)
    ignored: int = 0

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=200 * 1024**2)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.endpoint = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._session = aiohttp.ClientSession(auto_decompress=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        if self.down:
            return web.Response(status=503)
        if self.redirect and request.method == "GET":
            return web.Response(status=307, headers={"Location": self.redirect})
        self.ignored += sum(name.lower() in CONDITIONS for name in request.headers)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in {*CONDITIONS, *_HOPS}}
        url, body = f"{self.upstream}{request.raw_path}", await request.read()
        async with self._session.request(request.method, url, data=io.BytesIO(body), headers=headers) as answer:
            content = await answer.read()
            planted = [each for end, each in self.answers.items() if request.path.endswith(end)]
            if request.method == "GET" and planted:
                content = planted[0]
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOPS}
            return web.Response(status=answer.status, body=content, headers=kept)
