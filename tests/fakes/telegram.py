"""A Telegram Bot API server for tests: real offsets, conflicts, webhooks and faults, over real HTTP.

Requests are checked by aiogram's own method models and Telegram's documented rules, unless `light`.
"""

import asyncio
import json
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from typing import Any, Self

from aiohttp import BodyPartReader, ClientError, ClientSession, web

Params = dict[str, Any]
Update = dict[str, Any]

MAX_TEXT = 4096
MAX_ENTITIES = 100
MAX_CAPTION = 1024
MAX_DOWNLOAD = 20 * 2**20
MAX_PHOTO = 10 * 2**20
MAX_UPLOAD = 50 * 2**20
_RICH_TAGS = (
    "b i u s code mark sub sup a p h1 h2 h3 h4 h5 h6 pre blockquote ul ol li table tr th td details summary "
    "tg-spoiler tg-math tg-math-block"
)
_VOID_TAGS = ("br", "hr")
WEBHOOK_RETRY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as it arrived in a form."""

    name: str
    mime: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Sent:
    """A message the bot's chat partner sees; `text` is what is visible, `raw` what the bot wrote."""

    chat: int
    text: str
    raw: str
    parse_mode: str | None
    message_id: int
    thread: int | None = None
    method: str = "sendmessage"
    file: Upload | None = None
    reply_to: int | None = None


@dataclass(slots=True)
class Fault:
    """The next `n` calls of a method are refused."""

    refusal: "Refusal | None"
    n: int


@dataclass(frozen=True, slots=True)
class Hook:
    """Where updates are pushed to."""

    url: str
    secret: str


class Refusal(Exception):
    """The server says no."""

    def __init__(self, code: int, description: Any, **parameters: Any) -> None:
        super().__init__(description)
        self.code, self.description, self.parameters = code, description, parameters

    def response(self) -> web.Response:
        if self.code == 200:
            return web.json_response({"ok": True, "result": self.description})
        body: Params = {"ok": False, "error_code": self.code, "description": self.description}
        return web.json_response(body | ({"parameters": self.parameters} if self.parameters else {}), status=self.code)


class Foreign(Refusal):
    """Somebody between us and the server answers, or the server in words that are not the Bot API's."""

    def __init__(self, code: int, body: str, **headers: str) -> None:
        super().__init__(code, body)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def response(self) -> web.Response:
        return web.Response(status=self.code, text=self.description, headers=self.headers, content_type="text/html")


class Lost(Exception):
    """The call was carried out and its answer never arrives."""


@dataclass
class FakeTelegram:
    """One bot and the people who talk to it; `async with FakeTelegram() as tg`."""

    light: bool = False
    port: int = 0
    token: str = "424242:" + "A" * 35
    username: str = "fake_bot"
    sent: list[Sent] = field(default_factory=list)
    drafts: list[tuple[int, int, str]] = field(default_factory=list)
    actions: list[tuple[int, str]] = field(default_factory=list)
    reactions: list[tuple[int, int, list[str]]] = field(default_factory=list)
    commands: list[Params] = field(default_factory=list)
    calls: list[tuple[str, Params]] = field(default_factory=list)
    polls: int = 0
    acknowledged: int = 0
    allowed_updates: list[str] = field(default_factory=list)
    revoked: bool = False
    max_upload: int = MAX_UPLOAD
    unknown: set[str] = field(default_factory=set)
    """Methods that an older server would not have, in small letters."""
    keyboards: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """The buttons people see under a message: labels and values."""
    numbered_from: int = 0
    """The number of the last message before the first one here."""
    answered: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hook: Hook | None = None
        self.pending: list[Update] = []
        self._update_id = 1000
        self._message_id = self.numbered_from
        self._callback = 0
        self._files: dict[str, bytes] = {}
        self._asked: set[str] = set()
        self._chats: dict[int, Params] = {}
        self._blocked: set[int] = set()
        self._faults: dict[str, list[Fault]] = {}
        self._drops: dict[str, int] = {}
        self._hanging: set[str] = set()
        self._withheld: dict[str, int] = {}
        self._released = asyncio.Event()
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._listener: socket.socket | None = None
        self._pump: asyncio.Task[None] | None = None
        self._rules = None if self.light else Rules()

    # --- the server ---

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def bot_id(self) -> int:
        return int(self.token.partition(":")[0])

    async def start(self) -> None:
        """Listen; after `stop` on the same port as before."""
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        await web.SockSite(self._runner, self._listener).start()
        self.port = self._listener.getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections from now on; what is pending stays pending."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        self.release()
        if self._runner is not None and self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            await asyncio.sleep(0)  # asyncio would leave a connection open that was just accepted
            self._listener = None
            await self._runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=self.max_upload)
        app.router.add_route("*", "/bot{token}/{method}", self._api)
        app.router.add_get("/file/bot{token}/{path:.+}", self._download)
        return app

    # --- what people do ---

    def say(
        self,
        text: str | None = None,
        chat: int = 77,
        *,
        sender: int | None = None,
        bot: bool = False,
        group: bool = False,
        **message: object,
    ) -> Update:
        """Someone writes; `message` adds fields of the Bot API's Message. Mentions get their entities."""
        self._message_id += 1
        self._chats[chat] = (
            {"id": chat, "type": "supergroup", "title": "Group"}
            if group
            else {"id": chat, "type": "private", "first_name": "Ada"}
        )
        user = {"id": sender or chat, "is_bot": bot, "first_name": "Ada"}
        content = {} if text is None else {"text": text, "entities": _entities(text)}
        head = {"message_id": self._message_id, "date": int(time.time()), "chat": self._chats[chat], "from": user}
        return self.push({"message": head | content | message})

    def edit(self, update: Update, text: str) -> Update:
        """The writer changes what an earlier update said."""
        return self.push({"edited_message": update["message"] | {"text": text, "edit_date": int(time.time())}})

    def keep(self, data: bytes) -> Params:
        """A file on the server, as the fields that all kinds of media have."""
        number = str(len(self._files) + 1)
        self._files[f"file{number}"] = data
        return {"file_id": f"file{number}", "file_unique_id": f"u{number}", "file_size": len(data)}

    def lose_files(self) -> None:
        """No file is known any more."""
        self._files.clear()

    def press(self, sent: Sent, value: str, *, sender: int | None = None, reachable: bool = True) -> Update:
        """Someone presses a button under a message of the bot's; one out of reach tells only where it was."""
        self._callback += 1
        chat = self._chats.get(sent.chat, {"id": sent.chat, "type": "private", "first_name": "Ada"})
        message: Params = {"message_id": sent.message_id, "chat": chat, "date": int(time.time()) if reachable else 0}
        if reachable and sent.thread:
            message |= {"message_thread_id": sent.thread, "is_topic_message": True}
        user = {"id": sender or sent.chat, "is_bot": False, "first_name": "Ada"}
        query = {"id": str(self._callback), "from": user, "chat_instance": "1", "message": message, "data": value}
        return self.push({"callback_query": query})

    def stop_draft(self, chat: int, draft: int) -> Update:
        """The reader presses the stop button."""
        return self.push({"stopped_message_generation": {"chat": self._chats[chat], "draft_id": draft}})

    def push(self, content: Mapping[str, object]) -> Update:
        """Any update, whatever its shape."""
        self._update_id += 1
        update = {"update_id": self._update_id, **content}
        self.pending.append(update)
        self._notify()
        return update

    def set_webhook(self, url: str, secret: str = "") -> None:
        """As if an earlier program had asked for pushes; an empty `url` undoes it."""
        self.hook = Hook(url, secret) if url else None

    def block(self, chat: int) -> None:
        """The person blocks the bot."""
        self._blocked.add(chat)

    # --- what goes wrong ---

    def fault(self, method: str, code: int, description: Any = "", *, n: int = 1, **parameters: Any) -> None:
        """Refuse the next `n` calls of `method`; with code 200 answer them with nonsense.

        `parameters` are the Bot API's ResponseParameters, such as `retry_after`.
        """
        self._faults[method.lower()] = [Fault(Refusal(code, description or f"Error {code}", **parameters), n)]

    def answer(self, method: str, code: int, body: str = "", *, n: int = 1, **headers: str) -> None:
        """Answer the next `n` calls of `method` with just that, carrying nothing out."""
        self.refuse(method, *[Foreign(code, body, **headers)] * n)

    def refuse(self, method: str, *refusals: Refusal | None) -> None:
        """Refuse the next calls of `method`, each in its own way; None lets one pass."""
        self._faults[method.lower()] = [Fault(refusal, 1) for refusal in refusals]

    def faults_left(self, method: str) -> int:
        """How many calls of `method` are still to be refused."""
        return sum(fault.n for fault in self._faults.get(method.lower(), ()))

    def drop_response(self, method: str, n: int = 1) -> None:
        """Carry out the next `n` calls of `method`, then cut the connection without an answer."""
        self._drops[method.lower()] = n

    def withhold_response(self, method: str, n: int = 1) -> None:
        """Carry out the next `n` calls of `method`, then keep the connection and say nothing until `release`."""
        self._withheld[method.lower()] = n

    def hang(self, method: str) -> None:
        """Answer calls of `method` only after `release`."""
        self._hanging.add(method.lower())

    def release(self) -> None:
        """Nothing hangs any longer."""
        self._hanging.clear()
        self._released.set()
        self._released = asyncio.Event()
        self._notify()

    # --- what a test waits for ---

    async def wait_for(self, condition: Callable[[Self], bool], seconds: float = 60) -> None:
        """Return as soon as `condition` holds; looked at after every change."""
        async with asyncio.timeout(seconds):
            while not condition(self):
                await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self.hook is not None and self.pending and (self._pump is None or self._pump.done()):
            self._pump = asyncio.get_running_loop().create_task(self._push_all())

    # --- the Bot API ---

    async def _api(self, request: web.Request) -> web.Response:
        method = request.match_info["method"].lower()
        try:
            params, uploads = await _params(request, self.max_upload)
            if method != "getupdates":
                self.calls.append((method, params))
                self._notify()
            result = await self._answer(request.match_info["token"], method, params, uploads)
        except Refusal as refusal:
            return refusal.response()
        except Lost:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        finally:
            self._notify()
        return web.json_response({"ok": True, "result": result})

    async def _answer(self, token: str, method: str, params: Params, uploads: Mapping[str, Upload]) -> object:
        if token != self.token or self.revoked:
            raise Refusal(401, "Unauthorized")
        await self._be_slow(method)
        self._be_faulty(method)
        if method in self.unknown or (method not in _METHODS and method not in _MEDIA):
            raise Refusal(404, "Not Found: method not found")
        if self._rules is not None:
            self._rules.check(method, params, uploads)
        act = _METHODS.get(method)
        result = self._send_file(method, params, uploads) if act is None else act(self, params)
        if asyncio.iscoroutine(result):
            result = await result
        if self._drops.get(method, 0) > 0:
            self._drops[method] -= 1
            raise Lost
        if self._withheld.get(method, 0) > 0:
            self._withheld[method] -= 1
            self._notify()
            await self._released.wait()
        return result

    async def _be_slow(self, method: str) -> None:
        while method in self._hanging:
            await self._changed.wait()

    def _be_faulty(self, method: str) -> None:
        for fault in self._faults.get(method, ()):
            if fault.n > 0:
                fault.n -= 1
                if fault.refusal is None:
                    return
                raise fault.refusal

    async def _get_updates(self, params: Params) -> list[Update]:
        if self.hook is not None:
            raise Refusal(409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook")
        self.polls += 1
        turn = self.polls
        offset, until = int(params.get("offset") or 0), time.monotonic() + int(params.get("timeout") or 0)
        if offset > 0:
            self.pending = [update for update in self.pending if update["update_id"] >= offset]
            self.acknowledged = max(self.acknowledged, offset - 1)
        self.allowed_updates = json.loads(params.get("allowed_updates") or "[]")
        self._notify()
        while not self.pending and (left := until - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                break
            if self.polls != turn:
                raise Refusal(409, "Conflict: terminated by other getUpdates request; make sure that only one bot runs")
        return self.pending[: int(params.get("limit") or 100)]

    def _get_me(self, _: Params) -> Params:
        return {"id": self.bot_id, "is_bot": True, "first_name": "Fake", "username": self.username}

    def _send_message(self, params: Params) -> Params:
        raw, mode = str(params.get("text") or ""), params.get("parse_mode")
        shown = _visible(raw) if mode else raw
        if not shown.strip():
            raise Refusal(400, "Bad Request: message text is empty")
        if _utf16_len(shown) > MAX_TEXT:
            raise Refusal(400, "Bad Request: message is too long")
        if mode and len(re.findall(r"</(?!code></pre>)", raw)) > MAX_ENTITIES:
            raise Refusal(400, "Bad Request: entities are too many")
        return self._show("sendmessage", params, shown, raw) | {"text": shown}

    def _send_rich(self, params: Params) -> Params:
        page = params["rich_message"]
        page = json.loads(page) if isinstance(page, str) else page
        if set(page) != {"html"}:
            raise Refusal(400, "Bad Request: this fake reads rich messages in HTML only")
        Page().check(page["html"])
        return self._show("sendrichmessage", params, _visible(page["html"]), page["html"])

    def _send_file(self, method: str, params: Params, uploads: Mapping[str, Upload]) -> Params:
        raw = str(params.get("caption") or "")
        shown = _visible(raw) if params.get("parse_mode") else raw
        if _utf16_len(shown) > MAX_CAPTION:
            raise Refusal(400, "Bad Request: message caption is too long")
        file = uploads.get(str(params.get(_MEDIA[method]) or "").removeprefix("attach://"))
        if file is None:
            raise Refusal(400, f"Bad Request: there is no {_MEDIA[method]} in the request")
        if not file.data:
            raise Refusal(400, "Bad Request: file must be non-empty")
        if method == "sendphoto" and len(file.data) > MAX_PHOTO:
            raise Refusal(400, "Bad Request: file is too big for a photo")
        return self._show(method, params, shown, raw, file) | {"caption": shown}

    def _show(self, method: str, params: Params, shown: str, raw: str, file: Upload | None = None) -> Params:
        chat = int(params["chat_id"])
        if chat in self._blocked:
            raise Refusal(403, "Forbidden: bot was blocked by the user")
        reply, keyboard = (_json(params.get(name)) for name in ("reply_parameters", "reply_markup"))
        self._message_id += 1
        if keyboard:
            keys = [key for row in keyboard["inline_keyboard"] for key in row]
            self.keyboards[self._message_id] = [(key["text"], key["callback_data"]) for key in keys]
        thread = int(params["message_thread_id"]) if params.get("message_thread_id") else None
        mode, answered = params.get("parse_mode"), reply.get("message_id")
        self.sent.append(Sent(chat, shown, raw, mode, self._message_id, thread, method, file, answered))
        return self._ours(chat, self._message_id)

    def _ours(self, chat: int, message: int) -> Params:
        known = self._chats.get(chat, {"id": chat, "type": "private", "first_name": "Ada"})
        return {"message_id": message, "date": int(time.time()), "chat": known, "from": self._get_me({})}

    def _get_file(self, params: Params) -> Params:
        file = self._files.get(params["file_id"])
        if file is None:
            raise Refusal(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        if len(file) > MAX_DOWNLOAD:
            raise Refusal(400, "Bad Request: file is too big")
        self._asked.add(params["file_id"])
        return {"file_id": params["file_id"], "file_unique_id": "u", "file_path": f"documents/{params['file_id']}.bin"}

    async def _download(self, request: web.Request) -> web.StreamResponse:
        """A file that was asked for; a dropped download ends in its middle. Its faults go by the name `file`."""
        id = request.match_info["path"].removeprefix("documents/").removesuffix(".bin")
        try:
            self._be_faulty("file")
        except Refusal as refusal:
            return refusal.response()
        data = self._files.get(id)
        if request.match_info["token"] != self.token or data is None or id not in self._asked:
            return web.Response(status=404, text="Not Found")
        response = web.StreamResponse(headers={"Content-Length": str(len(data))})
        await response.prepare(request)
        dropped = self._drops.get("file", 0) > 0
        await response.write(data[: len(data) // 2] if dropped else data)
        if dropped and request.transport is not None:
            self._drops["file"] -= 1
            request.transport.abort()
        return response

    def _answer_callback(self, params: Params) -> bool:
        if not 0 < int(params["callback_query_id"]) <= self._callback:
            raise Refusal(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        self.answered.append(params["callback_query_id"])
        return True

    def _edit_keyboard(self, params: Params) -> Params:
        message = int(params["message_id"])
        if all(sent.message_id != message for sent in self.sent):
            raise Refusal(400, "Bad Request: message to edit not found")
        if self.keyboards.pop(message, None) is None:
            raise Refusal(
                400, "Bad Request: message is not modified: specified new message content is exactly the same"
            )
        return self._ours(int(params["chat_id"]), message)

    def _send_draft(self, params: Params) -> bool:
        chat, draft, text = int(params["chat_id"]), int(params.get("draft_id") or 0), str(params.get("text") or "")
        if chat < 0:
            raise Refusal(400, "Bad Request: drafts can be sent to private chats only")
        if not draft:
            raise Refusal(400, "Bad Request: draft_id must be non-zero")
        if _utf16_len(text) > MAX_TEXT:
            raise Refusal(400, "Bad Request: message is too long")
        self.drafts.append((chat, draft, text))
        return True

    def _send_action(self, params: Params) -> bool:
        self.actions.append((int(params["chat_id"]), str(params["action"])))
        return True

    def _react(self, params: Params) -> bool:
        reaction = params["reaction"]
        emoji = [each["emoji"] for each in (json.loads(reaction) if isinstance(reaction, str) else reaction)]
        self.reactions.append((int(params["chat_id"]), int(params["message_id"]), emoji))
        return True

    def _set_commands(self, params: Params) -> bool:
        commands = params["commands"]
        self.commands = json.loads(commands) if isinstance(commands, str) else commands
        return True

    def _set_webhook(self, params: Params) -> bool:
        self.set_webhook(str(params.get("url") or ""), str(params.get("secret_token") or ""))
        return True

    def _delete_webhook(self, _: Params) -> bool:
        self.hook = None
        return True

    async def _push_all(self) -> None:
        """One update at a time, again and again until it gets a 2xx."""
        async with ClientSession() as http:
            while self.pending and self.hook is not None:
                update = self.pending[0]
                headers = {"X-Telegram-Bot-Api-Secret-Token": self.hook.secret}
                try:
                    async with http.post(self.hook.url, json=update, headers=headers) as response:
                        delivered = response.status < 300
                except ClientError:
                    delivered = False
                if delivered:
                    self.pending.remove(update)
                    self.acknowledged = update["update_id"]
                    self._notify()
                else:
                    await asyncio.sleep(WEBHOOK_RETRY_SECONDS)


_METHODS: Mapping[str, Callable[[FakeTelegram, Params], object]] = {
    "getupdates": FakeTelegram._get_updates,
    "getme": FakeTelegram._get_me,
    "sendmessage": FakeTelegram._send_message,
    "sendmessagedraft": FakeTelegram._send_draft,
    "sendchataction": FakeTelegram._send_action,
    "setmessagereaction": FakeTelegram._react,
    "setmycommands": FakeTelegram._set_commands,
    "sendrichmessage": FakeTelegram._send_rich,
    "getfile": FakeTelegram._get_file,
    "answercallbackquery": FakeTelegram._answer_callback,
    "editmessagereplymarkup": FakeTelegram._edit_keyboard,
    "setwebhook": FakeTelegram._set_webhook,
    "deletewebhook": FakeTelegram._delete_webhook,
}

_MEDIA = {f"send{kind}": kind for kind in ("photo", "voice", "audio", "video", "document")}


class Page(HTMLParser):
    """The HTML of a rich message: known tags, each closed in its turn."""

    def check(self, html: str) -> None:
        self._open: list[str] = []
        self.feed(html)
        if self._open:
            raise Refusal(400, f"Bad Request: can't parse rich message: unclosed tag {self._open[-1]}")

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _VOID_TAGS:
            return
        if tag not in _RICH_TAGS.split():
            raise Refusal(400, f"Bad Request: can't parse rich message: unsupported tag {tag}")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID_TAGS and (not self._open or self._open.pop() != tag):
            raise Refusal(400, f"Bad Request: can't parse rich message: unexpected end tag {tag}")


class Rules:
    """What the real server would refuse, as far as it is documented."""

    def __init__(self) -> None:
        from channels.telegram.sdk import load_aiogram

        load_aiogram()
        from aiogram import methods

        offered = (getattr(methods, name) for name in methods.__all__)
        self._models = {
            model.__api_method__.lower(): model
            for model in offered
            if isinstance(getattr(model, "__api_method__", None), str)
        }

    def check(self, method: str, params: Params, uploads: Mapping[str, Upload]) -> None:
        from aiogram import Bot
        from aiogram.methods import SendMessage
        from aiogram.types import BufferedInputFile
        from pydantic import ValidationError
        from teremok.validation import ApiRuleViolation, validate_html, validate_method

        model = self._models.get(method)
        if model is None:
            raise Refusal(404, "Not Found: method not found")
        files = {f"attach://{key}": BufferedInputFile(file.data, file.name) for key, file in uploads.items()}
        try:
            given = {name: _decoded(name, value) for name, value in params.items()}
            call = model.model_validate(
                {name: files.get(value, value) if isinstance(value, str) else value for name, value in given.items()}
            )
            if call.model_extra:
                raise Refusal(400, f"Bad Request: unknown field {next(iter(call.model_extra))}")
            if params.get("parse_mode") == "HTML":
                validate_html(str(params.get("text") or params.get("caption") or ""))
            if params.get("reply_markup"):
                validate_method(Bot("1:a"), SendMessage(chat_id=1, text="x", reply_markup=call.reply_markup))
        except ValidationError as error:
            raise Refusal(400, f"Bad Request: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}") from error
        except ApiRuleViolation as error:
            raise Refusal(400, error.description) from error


async def _params(request: web.Request, most: int) -> tuple[Params, dict[str, Upload]]:
    params: Params = dict(request.query)
    if request.content_type == "application/json":
        body: Params = await request.json()
        return params | body, {}
    if request.content_type != "multipart/form-data":
        return params | dict(await request.post()), {}
    uploads: dict[str, Upload] = {}
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        assert part.name is not None
        data = await _read(part, most)
        if part.filename is None:
            params[part.name] = data.decode()
        else:
            uploads[part.name] = Upload(part.filename, part.headers.get("Content-Type", ""), data)
    return params, uploads


async def _read(part: BodyPartReader, most: int) -> bytes:
    """In pieces so large that aiohttp never has to put one back, which it warns about."""
    data = b""
    while piece := await part.read_chunk(2**26):
        data += piece
        if len(data) > most:
            raise web.HTTPRequestEntityTooLarge(most)
    return data


def _json(value: object) -> Params:
    """A field that is an object, as a form or as JSON carries it."""
    decoded: Params = json.loads(value) if isinstance(value, str) else value or {}
    return decoded


def _visible(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


def _decoded(name: str, value: object) -> object:
    """Forms carry lists and objects as JSON."""
    if isinstance(value, str) and value[:1] in ("[", "{") and name not in {"text", "caption"}:
        return json.loads(value)
    return value


def _entities(text: str) -> list[Params]:
    found = [("bot_command", match) for match in re.finditer(r"(?<!\S)/\w+(@\w+)?", text)]
    found += [("mention", match) for match in re.finditer(r"(?<!\S)@\w+", text)]
    return [
        {"type": kind, "offset": _utf16_len(text[: match.start()]), "length": _utf16_len(match.group())}
        for kind, match in found
    ]


def _utf16_len(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
