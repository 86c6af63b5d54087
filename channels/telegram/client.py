"""The Bot API over aiohttp alone: calls and their outcomes. aiogram would delay the first poll by its import."""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from ssl import create_default_context
from typing import Any, Literal, TypeVar

import certifi
from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    FormData,
    InvalidURL,
    TCPConnector,
)
from pydantic import BaseModel, TypeAdapter

from channels.telegram.errors import Moved, refusal
from gateway.domain.channels.channel import Button, FetchDelayed, FetchFailed, Outgoing
from gateway.domain.channels.platform import PlatformError, Refused, Unanswered, Unreachable
from gateway.domain.conversation.inbound import Address, Attachment
from gateway.domain.json import JsonObject

Result = TypeVar("Result")

TELEGRAM = "https://api.telegram.org"
CONNECT_SECONDS = 10
ANSWER_SECONDS = 30
DOWNLOAD_SECONDS = 600
CHUNK_BYTES = 256 * 1024
MAX_CONNECTIONS = 300
"""More than the concurrent answers, so that a poll never waits for a connection."""


class _Answer(BaseModel):
    """Not generic: pydantic makes such a class anew at each call, which takes a millisecond."""

    ok: Literal[True]
    result: Any


class _Bot(BaseModel):
    username: str = ""


class _Sent(BaseModel):
    message_id: int


class _File(BaseModel):
    file_path: str = ""


_UPDATES = TypeAdapter(list[dict[str, Any]])
"""Raw, so that an unreadable update affects no other."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that a call brings, under this name."""

    path: str
    name: str


UPDATE_KINDS = ("message", "edited_message", "callback_query", "stopped_message_generation")
MAX_UPDATES = 100
MAX_TEXT = 4096
BRIEF_SECONDS = 10
MAX_DOWNLOAD = 20 * 2**20


class Client:
    """Calls of one bot; they raise `PlatformError`: a request that never left differs from one without an answer."""

    def __init__(self, token: str, api_base: str | None) -> None:
        base = (api_base or TELEGRAM).rstrip("/")
        self._calls, self._files = f"{base}/bot{token}", f"{base}/file/bot{token}"
        self._opened: ClientSession | None = None
        self.known_name = ""
        """The bot's name; "" before the first `username()`."""
        self._moved: dict[str, int] = {}
        """Groups that became supergroups, where the ids of earlier messages are not valid."""

    async def updates(
        self, offset: int | None, wait: int, seconds: float, most: int = MAX_UPDATES
    ) -> Sequence[JsonObject]:
        """The updates from `offset` on, which acknowledges the earlier ones; Telegram waits `wait` seconds for one."""
        return await self.call(
            "getUpdates",
            _UPDATES.validate_python,
            seconds,
            offset=offset,
            limit=most,
            timeout=wait,
            allowed_updates=list(UPDATE_KINDS),
        )

    async def push_to(self, url: str, secret: str) -> None:
        """Have updates pushed to `url`, one at a time, which keeps them in order."""
        await self.do("setWebhook", url=url, secret_token=secret, max_connections=1, allowed_updates=list(UPDATE_KINDS))

    async def username(self) -> str:
        """The bot's name, requested once."""
        self.known_name = self.known_name or (await self.call("getMe", _Bot.model_validate, BRIEF_SECONDS)).username
        return self.known_name

    async def show(self, message: Outgoing, method: str, seconds: float = ANSWER_SECONDS, **content: object) -> str:
        """Send a message by `method`, also to a group that became a supergroup; returns its id."""
        try:
            return await self._show(message, method, seconds, content)
        except Moved as error:
            self._moved[message.address.chat] = error.chat
        return await self._show(message, method, seconds, content)

    async def _show(self, message: Outgoing, method: str, seconds: float, content: Mapping[str, object]) -> str:
        answered = None if message.address.chat in self._moved else message_number(message.reply_to or "")
        sent = await self.call(
            method,
            _Sent.model_validate,
            seconds,
            **self._place(message.address),
            reply_parameters={"message_id": answered, "allow_sending_without_reply": True} if answered else None,
            reply_markup=_keyboard(message.buttons),
            **content,
        )
        return str(sent.message_id)

    async def do(self, method: str, to: Address | None = None, **parameters: object) -> None:
        """Call a method whose result is not needed."""
        await self.call(method, bool, BRIEF_SECONDS, **(self._place(to) if to else {}), **parameters)

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield the bytes of a file, at most `MAX_DOWNLOAD`; raises `FetchFailed` or `FetchDelayed`."""
        name, left = attachment.name or "the file", MAX_DOWNLOAD
        try:
            file = await self.call("getFile", _File.model_validate, BRIEF_SECONDS, file_id=attachment.ref)
            if file.file_path.startswith("/"):
                raise FetchFailed(f"{name} cannot be fetched: the Bot API server runs with --local; start it without")
            async for piece in self.download(file.file_path):
                left -= len(piece)
                if left < 0:
                    raise _too_large(name)
                yield piece
        except Refused as error:
            gone = FetchFailed(f"Telegram no longer provides {name}; send it again ({error})")
            raise (_too_large(name) if "too big" in str(error) else gone) from error
        except PlatformError as error:
            raise FetchDelayed(str(error)) from error

    def _place(self, address: Address) -> Mapping[str, int | None]:
        chat = self._moved.get(address.chat) or int(address.chat)
        return {"chat_id": chat, "message_thread_id": int(address.thread) if address.thread else None}

    async def call(self, name: str, read: Callable[[Any], Result], seconds: float, **parameters: object) -> Result:
        """Call a method, once, and `read` its result; parameters that are None are left out. Raises `PlatformError`."""
        timeout = ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        url = f"{self._calls}/{name}"
        with _form(parameters) as form:
            # a redirect would pass the token on
            async with _network(), self._http.post(url, data=form, timeout=timeout, allow_redirects=False) as response:
                content = await _body(response)
        if response.status < 300:
            with suppress(ValueError, RecursionError):  # json reads lone surrogates, which pydantic refuses
                return read(_Answer.model_validate(json.loads(content)).result)
        raise refusal(response.status, response.headers.get("Retry-After"), content)

    async def download(self, path: str) -> AsyncIterator[bytes]:
        """Yield a file in pieces; raises `PlatformError`."""
        timeout = ClientTimeout(total=DOWNLOAD_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS)
        url = f"{self._files}/{path}"
        async with _network(), self._http.get(url, timeout=timeout, allow_redirects=False) as response:
            if response.status in {400, 403, 404, 410}:
                raise Refused(f"Telegram answered {response.status}")
            if response.status != 200:
                raise refusal(response.status, response.headers.get("Retry-After"), "")
            async for piece in response.content.iter_chunked(CHUNK_BYTES):
                yield piece

    @property
    def _http(self) -> ClientSession:
        if self._opened is None:
            trusted = create_default_context(cafile=certifi.where()) if self._calls.startswith("https:") else True
            self._opened = ClientSession(connector=TCPConnector(limit=MAX_CONNECTIONS, ssl=trusted))
        return self._opened

    async def close(self) -> None:
        """Close all connections."""
        if self._opened is not None:
            await self._opened.close()


@contextmanager
def _form(parameters: Mapping[str, object]) -> Iterator[FormData]:
    """The parameters as the Bot API takes them: texts as they are, the rest as JSON, a file in a part of its own."""
    form = FormData(quote_fields=False)
    with ExitStack() as files:
        for name, value in parameters.items():
            if isinstance(value, Upload):
                form.add_field(name, "attach://file")
                form.add_field("file", files.enter_context(open(value.path, "rb")), filename=value.name)
            elif value not in (None, ""):
                form.add_field(name, value if isinstance(value, str) else json.dumps(value))
        yield form


async def _body(response: ClientResponse) -> str:
    """The body of an answer; "" if that of a refusal is cut off."""
    try:
        return await response.text(errors="replace")
    except (ClientError, OSError):
        if response.status < 300 or response.status >= 500:
            raise
        return ""


@asynccontextmanager
async def _network() -> AsyncIterator[None]:
    """Translate network errors, `from None`: some of their texts contain the address and with it the token."""
    try:
        yield
    except ClientConnectorError as error:
        raise Unreachable(f"cannot connect to {error.host}:{error.port}") from None
    except (ConnectionTimeoutError, InvalidURL) as error:
        raise Unreachable(f"cannot connect: {type(error).__name__}") from None
    except (ClientError, OSError) as error:
        raise Unanswered(f"no answer: {type(error).__name__}") from None


def message_number(platform_id: str) -> int | None:
    """The message id in a platform id, also in that of an edit; None in that of a button press."""
    number = platform_id.partition(":")[0]
    return int(number) if number.isdecimal() else None


def _keyboard(buttons: Sequence[Button]) -> Mapping[str, object] | None:
    """Up to three buttons in a row, more in a column; those with values over 64 bytes are left out."""
    shown = (button for button in buttons if button.label and 0 < len(button.value.encode()) <= 64)
    keys = [{"text": button.label, "callback_data": button.value} for button in shown]
    return {"inline_keyboard": [keys] if len(keys) <= 3 else [[key] for key in keys]} if keys else None


def _too_large(name: str) -> FetchFailed:
    return FetchFailed(f"{name} is larger than 20 MB, the limit of Telegram for bots; send a smaller one")
