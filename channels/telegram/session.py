"""One HTTP call to the Bot API, and everything that can become of it. Imports aiogram: run `preload` first."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import PRODUCTION, TelegramAPIServer
from aiogram.exceptions import AiogramError
from aiogram.methods import Response, TelegramMethod
from aiohttp import ClientConnectorError, ClientError, ClientResponse, ClientTimeout, ConnectionTimeoutError, InvalidURL

from channels.telegram.errors import refusal
from gateway.domain.channels.platform import Refused, Unanswered, Unreachable

Result = TypeVar("Result")

CONNECT_SECONDS = 10
ANSWER_SECONDS = 30
DOWNLOAD_SECONDS = 600
CHUNK = 256 * 1024
CONNECTIONS = 300
"""More than there can be answers under way, so that a poll never waits for one."""


class Session(AiohttpSession):
    """The HTTP connections of one bot; tells a request that never left from one whose answer is missing."""

    def __init__(self, token: str, api_base: str | None) -> None:
        api = TelegramAPIServer.from_base(api_base) if api_base else PRODUCTION
        super().__init__(api=api, limit=CONNECTIONS)
        self._bot = Bot(token, session=self)
        self._methods: dict[str, type[TelegramMethod[Any]]] = {}

    async def call(self, name: str, returning: type[Result], seconds: float, **parameters: object) -> Result:
        """Ask for a method, once; None leaves a parameter out. Raises `PlatformError`."""
        if name not in self._methods:
            self._methods[name] = _method(name, returning)
        method = self._methods[name](**parameters)
        url, form = self.api.api_url(self._bot.token, name), self.build_form_data(self._bot, method)
        timeout = ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        http = await self.create_session()
        # a redirect would take the token along
        async with _network(), http.post(url, data=form, timeout=timeout, allow_redirects=False) as response:
            content = await _body(response)
        if response.status < 300:
            with suppress(AiogramError):
                answer: Response[Result] = self.check_response(self._bot, method, response.status, content)
                if answer.result is not None:
                    return answer.result
        raise refusal(response.status, response.headers.get("Retry-After"), content)

    async def download(self, path: str) -> AsyncIterator[bytes]:
        """A file in pieces; raises `PlatformError`."""
        http = await self.create_session()
        timeout = ClientTimeout(total=DOWNLOAD_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS)
        url = self.api.file_url(self._bot.token, path)
        async with _network(), http.get(url, timeout=timeout, allow_redirects=False) as response:
            if response.status in {400, 403, 404, 410}:
                raise Refused(f"Telegram answered {response.status}")
            if response.status != 200:
                raise refusal(response.status, response.headers.get("Retry-After"), "")
            async for piece in response.content.iter_chunked(CHUNK):
                yield piece

    async def close(self) -> None:
        """Without aiogram's pause of a quarter of a second, which current aiohttp does not need."""
        if self._session is not None:
            await self._session.close()


def _method(name: str, returning: type[object]) -> type[TelegramMethod[Any]]:
    """The method without aiogram's model of it: most take 10 ms to build, and 70 ms for the message they return."""

    class Method(TelegramMethod[Any]):
        __api_method__ = name
        __returning__ = returning
        # aiogram makes this class anew for each answer unless somebody holds it: a millisecond each time
        __held__ = Response.__class_getitem__(returning)

    return Method


async def _body(response: ClientResponse) -> str:
    """A refusal whose text is cut off is one all the same."""
    try:
        return await response.text(errors="replace")
    except (ClientError, OSError):
        if response.status < 300 or response.status >= 500:
            raise
        return ""


@asynccontextmanager
async def _network() -> AsyncIterator[None]:
    """`from None`: the texts of some of these errors hold the address, and with it the token."""
    try:
        yield
    except ClientConnectorError as error:
        raise Unreachable(f"cannot connect to {error.host}:{error.port}") from None
    except (ConnectionTimeoutError, InvalidURL) as error:
        raise Unreachable(f"cannot connect: {type(error).__name__}") from None
    except (ClientError, OSError) as error:
        raise Unanswered(f"no answer: {type(error).__name__}") from None
