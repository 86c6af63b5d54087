"""A Telegram Bot API server for tests: real offsets, conflicts, webhooks and faults, over real HTTP.

Requests are checked by aiogram's own method models and Telegram's documented rules, unless `light`.
`python -m tests.fakes.telegram --port 9005 [--light]` serves the same with control endpoints (`/_user`, `/_fault` …).
"""

import argparse
import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from html import unescape
from typing import Any, Self

from aiohttp import ClientError, ClientSession, web

Params = dict[str, Any]
Update = dict[str, Any]

MAX_TEXT = 4096
WEBHOOK_RETRY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Sent:
    """A message the bot's chat partner sees; `text` is what is visible, `raw` what the bot wrote."""

    chat: int
    text: str
    raw: str
    parse_mode: str | None
    message_id: int
    thread: int | None = None


@dataclass(slots=True)
class Fault:
    """The next `n` calls of a method are refused."""

    refusal: "Refusal"
    n: int


@dataclass(frozen=True, slots=True)
class Hook:
    """Where updates are pushed to."""

    url: str
    secret: str


class Refusal(Exception):
    """The server says no."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code, self.description, self.parameters = code, description, parameters

    def response(self) -> web.Response:
        if self.code == 200:
            return web.json_response({"ok": True, "result": self.description})
        body: Params = {"ok": False, "error_code": self.code, "description": self.description}
        return web.json_response(body | ({"parameters": self.parameters} if self.parameters else {}), status=self.code)


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
    commands: list[Params] = field(default_factory=list)
    calls: list[tuple[str, Params]] = field(default_factory=list)
    polls: int = 0
    acknowledged: int = 0
    allowed_updates: list[str] = field(default_factory=list)
    revoked: bool = False

    def __post_init__(self) -> None:
        self.hook: Hook | None = None
        self.pending: list[Update] = []
        self._update_id = 1000
        self._message_id = 0
        self._chats: dict[int, Params] = {}
        self._blocked: set[int] = set()
        self._faults: dict[str, Fault] = {}
        self._drops: dict[str, int] = {}
        self._hanging: set[str] = set()
        self._withheld: dict[str, int] = {}
        self._released = asyncio.Event()
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
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
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Refuse connections from now on; what is pending stays pending."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        self.release()
        if self._runner is not None:
            await self._runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/bot{token}/{method}", self._api)
        app.router.add_post("/_user", self._control(self._from_control))
        app.router.add_post("/_fault", self._control(lambda body: self.fault(**body)))
        app.router.add_post("/_drop", self._control(lambda body: self.drop_response(**body)))
        app.router.add_get("/_calls", self._control(lambda _: self.calls))
        app.router.add_get("/_sent", self._control(lambda _: [[sent.chat, sent.text] for sent in self.sent]))
        app.router.add_get("/_state", self._control(lambda _: {"polls": self.polls, "pending": len(self.pending)}))
        return app

    def _control(self, act: Callable[[Params], object]) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.Response:
            return web.json_response(act(await request.json() if request.can_read_body else {}))

        return handle

    def _from_control(self, body: Params) -> Update:
        return self.push(body["raw"]) if "raw" in body else self.say(**body)

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
        """As if an earlier program had asked for pushes; an empty `url` takes it back."""
        self.hook = Hook(url, secret) if url else None

    def block(self, chat: int) -> None:
        """The person blocks the bot."""
        self._blocked.add(chat)

    # --- what goes wrong ---

    def fault(self, method: str, code: int, description: str = "", *, n: int = 1, **parameters: int) -> None:
        """Refuse the next `n` calls of `method`; with code 200 answer them with nonsense.

        `parameters` are the Bot API's ResponseParameters, such as `retry_after`.
        """
        self._faults[method.lower()] = Fault(Refusal(code, description or f"Error {code}", **parameters), n)

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

    async def wait_for(self, condition: Callable[[Self], bool], seconds: float = 10) -> None:
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
            params = await _params(request)
            if method != "getupdates":
                self.calls.append((method, params))
                self._notify()
            result = await self._answer(request.match_info["token"], method, params)
        except Refusal as refusal:
            return refusal.response()
        except Lost:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        finally:
            self._notify()
        return web.json_response({"ok": True, "result": result})

    async def _answer(self, token: str, method: str, params: Params) -> object:
        if token != self.token or self.revoked:
            raise Refusal(401, "Unauthorized")
        await self._be_slow(method)
        self._be_faulty(method)
        if self._rules is not None:
            self._rules.check(method, params)
        act = _METHODS.get(method)
        if act is None:
            raise Refusal(404, "Not Found: method not found")
        result = act(self, params)
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
        fault = self._faults.get(method)
        if fault is not None and fault.n > 0:
            fault.n -= 1
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
        chat, raw, mode = int(params["chat_id"]), str(params.get("text") or ""), params.get("parse_mode")
        if chat in self._blocked:
            raise Refusal(403, "Forbidden: bot was blocked by the user")
        shown = unescape(re.sub(r"<[^>]*>", "", raw)) if mode else raw
        if not shown.strip():
            raise Refusal(400, "Bad Request: message text is empty")
        if _utf16_len(shown) > MAX_TEXT:
            raise Refusal(400, "Bad Request: message is too long")
        self._message_id += 1
        thread = int(params["message_thread_id"]) if params.get("message_thread_id") else None
        self.sent.append(Sent(chat, shown, raw, mode, self._message_id, thread))
        known = self._chats.get(chat, {"id": chat, "type": "private", "first_name": "Ada"})
        head = {"message_id": self._message_id, "date": int(time.time()), "chat": known, "from": self._get_me({})}
        return head | {"text": shown}

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
    "setmycommands": FakeTelegram._set_commands,
    "setwebhook": FakeTelegram._set_webhook,
    "deletewebhook": FakeTelegram._delete_webhook,
}


class Rules:
    """What the real server would refuse, as far as it is documented."""

    def __init__(self) -> None:
        from channels.telegram import preload

        preload()
        from aiogram import methods

        offered = (getattr(methods, name) for name in methods.__all__)
        self._models = {
            model.__api_method__.lower(): model
            for model in offered
            if isinstance(getattr(model, "__api_method__", None), str)
        }

    def check(self, method: str, params: Params) -> None:
        from pydantic import ValidationError
        from teremok.validation import ApiRuleViolation, validate_html

        model = self._models.get(method)
        if model is None:
            raise Refusal(404, "Not Found")
        try:
            call = model.model_validate({name: _decoded(name, value) for name, value in params.items()})
            if call.model_extra:
                raise Refusal(400, f"Bad Request: unknown field {next(iter(call.model_extra))}")
            if params.get("parse_mode") == "HTML":
                validate_html(str(params.get("text") or ""))
        except ValidationError as error:
            raise Refusal(400, f"Bad Request: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}") from error
        except ApiRuleViolation as error:
            raise Refusal(400, error.description) from error


async def _params(request: web.Request) -> Params:
    params: Params = dict(request.query)
    if request.content_type == "application/json":
        body: Params = await request.json()
        return params | body
    return params | {name: value for name, value in (await request.post()).items() if isinstance(value, str)}


def _decoded(name: str, value: object) -> object:
    """Forms carry lists and objects as JSON."""
    if isinstance(value, str) and value[:1] in ("[", "{") and name != "text":
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


async def _serve(port: int, light: bool) -> None:
    async with FakeTelegram(light=light, port=port) as telegram:
        print(telegram.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--light", action="store_true")
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(options.port, options.light))
