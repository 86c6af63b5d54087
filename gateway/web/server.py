"""Runs the app on the gateway's event loop, and closes open streams when it stops."""

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn

from gateway.web.app import build_app
from gateway.web.backend import Backend
from gateway.web.http.connections import Connection

GRACE_SECONDS = 5


async def serve(backend: Backend, listener: socket.socket) -> None:
    """Serve on this socket until cancelled; then end the streams, finish open requests, and close it."""
    with listener:
        app = await asyncio.to_thread(build_app, backend)
        config = uvicorn.Config(
            app,
            http=Connection,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        server = _Server(config)
        running = asyncio.create_task(server.serve([listener]), name="uvicorn")
        try:
            await asyncio.shield(running)
        finally:
            app.state.site.stopping.set()
            server.request_stop()
            await running


class _Server(uvicorn.Server):
    """uvicorn without its tick, which polls ten times a second whether to stop and wakes an idle gateway."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._left = asyncio.Event()

    def request_stop(self) -> None:
        self.should_exit = True
        self._left.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._left.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Do nothing: the gateway handles signals."""
        yield
