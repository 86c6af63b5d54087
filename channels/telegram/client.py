"""The Bot API calls this channel makes. Imports aiogram: run `preload` first."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import PRODUCTION, TelegramAPIServer
from aiogram.exceptions import (
    ClientDecodeError,
    TelegramAPIError,
    TelegramConflictError,
    TelegramNotFound,
    TelegramRetryAfter,
    TelegramUnauthorizedError,
)
from aiogram.methods import (
    DeleteWebhook,
    GetMe,
    Response,
    SendChatAction,
    SendMessageDraft,
    SetMyCommands,
    SetWebhook,
    TelegramMethod,
)
from aiogram.types import BotCommand
from aiohttp import ClientConnectorError, ClientError, ClientTimeout, ConnectionTimeoutError, InvalidURL
from pydantic import BaseModel

from channels.telegram.errors import Conflict, Refused, TokenRefused, TooFast, Unanswered, Unreachable
from channels.telegram.raw import UPDATE_KINDS
from gateway.domain.inbound import Address
from gateway.domain.json import JsonObject

Result = TypeVar("Result")

CONNECT_SECONDS = 10
ANSWER_SECONDS = 30
BRIEF_SECONDS = 10


class Client:
    """Calls over two HTTP sessions, so that a stuck poll never holds up an answer; raises `TelegramError`."""

    def __init__(self, token: str, api_base: str | None) -> None:
        self._token = token
        self._api = TelegramAPIServer.from_base(api_base) if api_base else PRODUCTION
        self._username: str | None = None

    @cached_property
    def _poller(self) -> Bot:
        return Bot(self._token, session=_Session(api=self._api))

    @cached_property
    def _caller(self) -> Bot:
        return Bot(self._token, session=_Session(api=self._api))

    async def updates(self, offset: int | None, wait: int) -> Sequence[JsonObject]:
        """What arrived from `offset` on, which acknowledges everything before it; waits up to `wait` seconds."""
        method = _GetUpdates(offset=offset, timeout=wait, allowed_updates=list(UPDATE_KINDS))
        return await _call(self._poller, method, wait + 2 * ANSWER_SECONDS)

    async def forget_poll(self) -> None:
        """Drop the connection of `updates`; the next call makes a new one."""
        await self._poller.session.close()

    async def username(self) -> str:
        """The bot's own name, asked for once."""
        if self._username is None:
            self._username = (await _call(self._caller, GetMe(), BRIEF_SECONDS)).username or ""
        return self._username

    async def send(self, to: Address, text: str, parse_mode: str | None) -> str:
        """The id of the new message. No link previews: Telegram would fetch whatever address a model wrote."""
        method = _SendMessage(chat_id=int(to.chat), message_thread_id=_thread(to), text=text, parse_mode=parse_mode)
        return str((await _call(self._caller, method, ANSWER_SECONDS)).message_id)

    async def draft(self, to: Address, draft: int, text: str) -> None:
        """Show or change the unfinished message `draft`, with a button to stop it."""
        method = SendMessageDraft(
            chat_id=int(to.chat), message_thread_id=_thread(to), draft_id=draft, text=text, can_stop=True
        )
        await _call(self._caller, method, BRIEF_SECONDS)

    async def typing(self, to: Address) -> None:
        """Show that an answer is being written, for five seconds."""
        method = SendChatAction(chat_id=int(to.chat), message_thread_id=_thread(to), action="typing")
        await _call(self._caller, method, BRIEF_SECONDS)

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Replace the menu."""
        menu = [BotCommand(command=name, description=description) for name, description in commands]
        await _call(self._caller, SetMyCommands(commands=menu), BRIEF_SECONDS)

    async def set_webhook(self, url: str, secret: str) -> None:
        """Have updates pushed to `url`, one at a time: that is what keeps them in order."""
        method = SetWebhook(url=url, secret_token=secret, max_connections=1, allowed_updates=list(UPDATE_KINDS))
        await _call(self._caller, method, ANSWER_SECONDS)

    async def delete_webhook(self) -> None:
        """Back to polling; what is waiting is kept."""
        await _call(self._caller, DeleteWebhook(drop_pending_updates=False), ANSWER_SECONDS)

    async def close(self) -> None:
        """Close both sessions."""
        for bot in (self._poller, self._caller):
            await bot.session.close()


class _GetUpdates(TelegramMethod[list[dict[str, Any]]]):
    """Leaves every update as it came, so that one that cannot be read harms no other."""

    __returning__ = list[dict[str, Any]]
    __api_method__ = "getUpdates"

    offset: int | None
    timeout: int
    allowed_updates: list[str]


class _Receipt(BaseModel):
    message_id: int


class _SendMessage(TelegramMethod[_Receipt]):
    """The part of `sendMessage` that is used here; to build aiogram's whole model takes a tenth of a second."""

    __returning__ = _Receipt
    __api_method__ = "sendMessage"

    chat_id: int
    message_thread_id: int | None
    text: str
    parse_mode: str | None
    link_preview_options: Mapping[str, bool] = {"is_disabled": True}


class _Session(AiohttpSession):
    """Tells a request that never left from one whose answer is missing."""

    def __init__(self, api: TelegramAPIServer) -> None:
        super().__init__(api=api)
        self._held: dict[type[TelegramMethod[Any]], object] = {}

    async def close(self) -> None:
        """Without aiogram's pause of a quarter of a second, which current aiohttp does not need."""
        if self._session is not None:
            await self._session.close()

    async def make_request(self, bot: Bot, method: TelegramMethod[Result], timeout: int | None = None) -> Result:
        http = await self.create_session()
        url = self.api.api_url(token=bot.token, method=method.__api_method__)
        seconds = ClientTimeout(total=timeout, sock_connect=CONNECT_SECONDS)
        # `from None`: the texts of some of these errors hold the address, and with it the token
        try:
            async with http.post(url, data=self.build_form_data(bot, method), timeout=seconds) as response:
                status, content = response.status, await response.text()
        except ClientConnectorError as error:
            raise Unreachable(f"cannot connect to {error.host}:{error.port}") from None
        except (ConnectionTimeoutError, InvalidURL) as error:
            raise Unreachable(f"cannot connect: {type(error).__name__}") from None
        except (ClientError, OSError) as error:
            raise Unanswered(f"no answer: {type(error).__name__}") from None
        if status >= 500:
            raise Unanswered(f"Telegram answered {status}")
        # aiogram makes this class anew for each answer unless somebody holds it: a millisecond each time
        self._held.setdefault(type(method), Response.__class_getitem__(method.__returning__))
        return cast(Result, self.check_response(bot, method, status, content).result)


async def _call(bot: Bot, method: TelegramMethod[Result], seconds: int) -> Result:
    try:
        return await bot(method, request_timeout=seconds)
    except TelegramRetryAfter as error:
        raise TooFast(f"Telegram asks to wait {error.retry_after} s", error.retry_after) from error
    except (TelegramUnauthorizedError, TelegramNotFound) as error:
        raise TokenRefused(error.message) from error
    except TelegramConflictError as error:
        raise Conflict(error.message) from error
    except TelegramAPIError as error:
        raise Refused(error.message.partition("\n")[0]) from error
    except ClientDecodeError as error:
        raise Unanswered(f"unreadable answer: {error.message}") from error


def _thread(address: Address) -> int | None:
    return int(address.thread) if address.thread else None
