"""Programs of several rights in front of one gateway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from openai import AsyncOpenAI

from gateway.domain.people.credentials import Scope
from gateway.store.people import tokens
from tests.web.conftest import LOCAL_TOKEN, Web


@asynccontextmanager
async def program(web: Web, name: str | None = None, *, as_owner: bool = False) -> AsyncIterator[AsyncOpenAI]:
    """A client of the official SDK, with the local token or with a new one."""
    key = LOCAL_TOKEN
    if name is not None:
        scopes = [Scope.CHAT]
        _, key = await tokens.create(web.path.database, web.backend.owner.id, name, scopes, as_owner=as_owner)
    async with AsyncOpenAI(base_url=f"{web.url}/v1", api_key=key, max_retries=0) as client:
        yield client
