"""The server: runs the app on the gateway's loop, and lets go of open streams when it stops."""

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn

from gateway.web.app import build_app
from gateway.web.backend import Backend
from gateway.web.site import Site

GRACE_SECONDS = 5
CONNECTIONS = 512
"""At once; whoever comes next gets a 503."""


async def serve(backend: Backend, listener: socket.socket) -> None:
    """Serve on this socket until cancelled; then end the streams, finish what is being answered, and close it."""
    with listener:
        await _serve(backend, listener)


async def _serve(backend: Backend, listener: socket.socket) -> None:
    app = await asyncio.to_thread(build_app, backend)
    site: Site = app.state.site
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws="none",
            lifespan="on",
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
    running = asyncio.create_task(server.serve([listener]), name="uvicorn")
    try:
        await asyncio.shield(running)
    finally:
        site.stopping.set()
        server.leave()
        await running


class _Server(uvicorn.Server):
    """Without uvicorn's clock: it looks ten times a second whether to stop, which an idle gateway can do without."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._left = asyncio.Event()

    def leave(self) -> None:
        """End the serving."""
        self.should_exit = True
        self._left.set()

    async def main_loop(self) -> None:
        """Answer until told to leave."""
        await self.on_tick(0)
        await self._left.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals are the gateway's business."""
        yield
