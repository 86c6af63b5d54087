"""Asks a local Ollama for its models over a plain socket, which needs no HTTP library."""

import asyncio
from contextlib import closing
from urllib.parse import urlsplit

from pydantic import BaseModel

_MAX_RESPONSE_BYTES = 1_000_000


class _Model(BaseModel):
    name: str


class _Tags(BaseModel):
    models: list[_Model] = []


async def installed_models(base_url: str, timeout: float = 0.3) -> tuple[str, ...]:
    """The model names, newest first; empty if nothing answers within `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            return _names(await _get(base_url, "/api/tags"))
    except (OSError, ValueError):
        return ()


async def _get(base_url: str, path: str) -> bytes:
    url = urlsplit(base_url)
    secure = url.scheme == "https"
    reader, writer = await asyncio.open_connection(
        url.hostname, url.port or (443 if secure else 80), ssl=secure or None
    )
    with closing(writer):
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {url.netloc}\r\n\r\n".encode())
        return await reader.read(_MAX_RESPONSE_BYTES)


def _names(answer: bytes) -> tuple[str, ...]:
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
        return ()
    return tuple(model.name for model in _Tags.model_validate_json(body).models)
