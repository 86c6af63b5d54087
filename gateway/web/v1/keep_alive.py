"""A JSON response that may take long: whitespace, which JSON allows before a value, shows that the connection lives."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any

import structlog
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Send

from gateway.domain.json import Json, JsonObject
from gateway.web.http.errors import Refused

PATIENCE_SECONDS = 20.0
"""Without an answer for so long the status is sent, a 200: what fails later can only stand in the body."""

log = structlog.get_logger(__name__)


async def json_response(work: Coroutine[Any, Any, JsonObject], headers: Mapping[str, str]) -> Response:
    """What `work` returns, or raises as a `Refused`."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.wait({running}, timeout=PATIENCE_SECONDS)
        if running.done():
            return JSONResponse(running.result(), headers=dict(headers))
    except BaseException:
        running.cancel()
        raise
    return _Patient(running, headers)


class _Patient(StreamingResponse):
    def __init__(self, running: "asyncio.Future[JsonObject]", headers: Mapping[str, str]) -> None:
        self._pieces = _pieces(running)
        # a compressor would keep the whitespace to itself
        unbuffered = {"Content-Encoding": "identity", "X-Accel-Buffering": "no"}
        super().__init__(self._pieces, media_type="application/json", headers={**headers, **unbuffered})

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._pieces):
            await super().stream_response(send)


async def _pieces(running: "asyncio.Future[JsonObject]") -> AsyncGenerator[bytes, None]:
    try:
        while not running.done():
            yield b" "
            await asyncio.wait({running}, timeout=PATIENCE_SECONDS)
        yield json.dumps(_outcome(running), ensure_ascii=False).encode()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _outcome(running: "asyncio.Future[JsonObject]") -> Json:
    try:
        return running.result()
    except Refused as refused:
        return refused.body()
    except Exception:
        log.exception("web.broken")
        return Refused(500, "internal_error", "Internal error; see the gateway's log.", type="server_error").body()
