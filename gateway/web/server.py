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
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
    running = asyncio.create_task(server.serve([listener]), name="uvicorn")
    try:
        await asyncio.shield(running)
    finally:
        site.stopping.set()
        server.should_exit = True
        await running


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals are the gateway's business."""
        yield
