"""A Slack for tests: the Web API over HTTP, Socket Mode over real websockets, files, and the faults of both.

An envelope that nobody acknowledges is delivered again, after a while and to every new socket.
"""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from html import unescape
from re import sub
from typing import Any, Self

from aiohttp import WSMsgType, web

Params = dict[str, Any]

RETRY_SECONDS = 1.0
LONGEST_UPDATE = 4000
LONGEST_STREAM = 12_000
REPLIES = 5
"""That the address of a slash command or a press is good for."""
US = {
    "team_id": "T1",
    "team": "Team",
    "user_id": "UBOT",
    "user": "claw",
    "bot_id": "BBOT",
    "url": "https://t.slack.com",
}


class Refusal(Exception):
    """The API says no."""

    def __init__(self, error: str, status: int = 200, **headers: str) -> None:
        super().__init__(error)
        self.error, self.status, self.headers = error, status, headers

    def response(self) -> web.Response:
        return web.json_response({"ok": False, "error": self.error}, status=self.status, headers=self.headers)


class Lost(Exception):
    """The call was carried out and its answer never arrives."""


@dataclass(slots=True)
class Delivery:
    """Something that happened, until it is acknowledged under one of its envelope ids."""

    type: str
    payload: Params
    attempts: int = 0
    envelopes: set[str] = field(default_factory=set)
    due: float = 0.0


@dataclass
class FakeSlack:
    """One workspace with our app in it; `async with FakeSlack() as slack`."""

    port: int = 0
    bot_token: str = "xoxb-1-abc"
    app_token: str = "xapp-1-abc"
    retry_seconds: float = RETRY_SECONDS
    names: dict[str, str] = field(default_factory=lambda: {"77": "Ada"})
    zones: dict[str, str] = field(default_factory=dict)
    messages: dict[str, list[Params]] = field(default_factory=lambda: {"77": []})
    calls: list[tuple[str, Params]] = field(default_factory=list)
    reactions: list[tuple[str, str, str]] = field(default_factory=list)
    statuses: list[tuple[str, str, str]] = field(default_factory=list)
    suggested: list[tuple[str, str, list[str]]] = field(default_factory=list)
    files: dict[str, Params] = field(default_factory=dict)
    content: dict[str, bytes] = field(default_factory=dict)
    locked: set[str] = field(default_factory=set)
    """Files that the app may not see."""
    replies: list[Params] = field(default_factory=list)
    """What was answered to slash commands and presses at their own addresses; one person sees it."""
    downloads: list[tuple[str, str]] = field(default_factory=list)
    sockets_opened: int = 0
    revoked: bool = False
    """Both tokens are refused."""
    frozen: bool = False
    """Sockets stay open, and nothing that comes over them is answered."""
    page: int = 200

    def __post_init__(self) -> None:
        self.pending: list[Delivery] = []
        self._ids = itertools.count(1)
        self._began = int(time.time())
        self._faults: dict[str, list[Refusal]] = {}
        self._drops: dict[str, int] = {}
        self._garbled: set[str] = set()
        self._sockets: list[web.WebSocketResponse] = []
        self._transports: dict[web.WebSocketResponse, asyncio.Transport] = {}
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._pump: asyncio.Task[None] | None = None

    # --- the server ---

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/"

    async def start(self) -> None:
        """Listen; after `stop` on the same port as before."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/api/{method}", self._api)
        app.router.add_get("/link", self._link)
        app.router.add_post("/upload/{id}", self._upload)
        app.router.add_get("/files/{id}", self._download)
        app.router.add_post("/reply/{id}", self._reply)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        self._pump = asyncio.get_running_loop().create_task(self._deliver_for_ever())

    async def stop(self) -> None:
        """Cut every socket, refuse connections; what is pending stays pending."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        self.kill()
        if self._runner is not None:
            await self._runner.cleanup()

    # --- what people do ---

    def say(
        self,
        text: str,
        chat: str = "77",
        *,
        sender: str = "77",
        bot: bool = False,
        thread: str | None = None,
        kind: str = "im",
        files: tuple[str, ...] = (),
        **event: object,
    ) -> Params:
        """Someone writes. In channels our name makes two events of it, as with Slack."""
        message: Params = {"type": "message", "ts": self._ts(), "user": sender, "text": text}
        message |= {"bot_id": "B5", "subtype": "bot_message"} if bot else {}
        message |= {"thread_ts": thread} if thread else {}
        message |= {"files": [self.files[id] for id in files], "subtype": "file_share"} if files else {}
        self.messages.setdefault(chat, []).append(message)
        heard = message | {"channel": chat, "channel_type": kind, "event_ts": message["ts"]} | event
        if kind != "im" and f"<@{US['user_id']}>" in text:
            self.push({name: heard[name] for name in heard if name != "channel_type"} | {"type": "app_mention"})
        self.push(heard)
        return heard

    def edit(self, said: Params, text: str) -> Params:
        """The writer changes what an earlier event said."""
        stored = self._find(said["channel"], said["ts"])
        before = dict(stored)
        stored |= {"text": text, "edited": {"user": said["user"], "ts": self._ts()}}
        where = {"channel": said["channel"], "channel_type": said["channel_type"], "ts": self._ts()}
        change = {"type": "message", "subtype": "message_changed", "message": dict(stored), "previous_message": before}
        return self.push(where | change)

    def delete(self, said: Params) -> Params:
        """The writer deletes what an earlier event said; the root of a thread with replies leaves a tombstone."""
        stored = self._find(said["channel"], said["ts"])
        where = {"type": "message", "channel": said["channel"], "channel_type": said["channel_type"], "ts": self._ts()}
        if any(message.get("thread_ts") == said["ts"] != message["ts"] for message in self._chat(said)):
            before = dict(stored)
            stored |= {"text": "This message was deleted.", "subtype": "tombstone", "user": "USLACKBOT"}
            change = {"subtype": "message_changed", "message": dict(stored), "previous_message": before}
        else:
            self._chat(said).remove(stored)
            change = {"subtype": "message_deleted", "deleted_ts": said["ts"], "previous_message": stored}
        return self.push(where | change)

    def command(self, command: str, text: str, chat: str = "77", *, sender: str = "77", name: str = "") -> None:
        """Someone types a slash command."""
        number = next(self._ids)
        told = {"command": command, "text": text, "user_id": sender, "user_name": "ada", "channel_id": chat}
        told |= {"channel_name": name or "directmessage", "trigger_id": f"{number}.{number}.abc", "team_id": "T1"}
        self._queue("slash_commands", told | {"response_url": self._reply_url()})

    def press(self, value: str, *, sender: str = "77") -> None:
        """Someone presses the button with this value, under the newest message that has it."""
        chat, message, button = next(
            (chat, message, button)
            for chat, messages in self.messages.items()
            for message in reversed(messages)
            for button in _buttons(message)
            if button["value"] == value
        )
        where = {"type": "message", "channel_id": chat, "message_ts": message["ts"], "is_ephemeral": False}
        where |= {"thread_ts": message["thread_ts"]} if "thread_ts" in message else {}
        action = {"type": "button", "action_id": button["action_id"], "value": value, "action_ts": self._ts()}
        person = {"id": sender, "username": "ada", "name": "ada", "team_id": "T1"}
        place = {"id": chat, "name": "directmessage" if chat.isdecimal() or chat.startswith("D") else "general"}
        told = {"type": "block_actions", "user": person, "channel": place, "container": where, "actions": [action]}
        about = {"trigger_id": f"{next(self._ids)}.2.x", "response_url": self._reply_url(), "team": {"id": "T1"}}
        self._queue("interactive", told | about | {"message": message})

    def file(self, data: bytes, name: str, mime: str, **facts: object) -> str:
        """A file of a person's; its id."""
        id = f"F{next(self._ids)}"
        self.content[id] = data
        url = f"http://127.0.0.1:{self.port}/files/{id}"
        self.files[id] = {"id": id, "name": name, "mimetype": mime, "size": len(data), "mode": "hosted"}
        self.files[id] |= {"url_private_download": url, "shares": {}} | facts
        return id

    def push(self, event: Params) -> Params:
        """Any event, whatever its shape."""
        us = [{"team_id": "T1", "user_id": US["user_id"], "is_bot": True}]
        about = {"team_id": "T1", "api_app_id": "A1", "type": "event_callback", "event_id": f"Ev{next(self._ids)}"}
        self._queue("events_api", about | {"event": event, "event_time": int(time.time()), "authorizations": us})
        return event

    def _reply_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/reply/{next(self._ids)}"

    def _queue(self, type: str, payload: Params) -> None:
        self.pending.append(Delivery(type, payload))
        self._notify()

    # --- what goes wrong ---

    def fault(self, method: str, error: str, *, n: int = 1, status: int = 200, **headers: str) -> None:
        """Refuse the next `n` calls of `method`, "upload", "download", "reply"; `_` in a header's name is a hyphen."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._faults.setdefault(method, []).extend(Refusal(error, status, **named) for _ in range(n))

    def drop_response(self, method: str, n: int = 1) -> None:
        """Carry out the next `n` calls of `method`, then cut the connection without an answer."""
        self._drops[method] = n

    def garble(self, method: str) -> None:
        """Answer the next call of `method` without what it was asked for."""
        self._garbled.add(method)

    def kill(self) -> None:
        """Cut every socket at once, without a goodbye."""
        for transport in self._transports.values():
            transport.abort()

    async def disconnect(self, reason: str = "refresh_requested") -> None:
        """Ask the client to connect anew."""
        for socket in list(self._sockets):
            await socket.send_json({"type": "disconnect", "reason": reason, "debug_info": {"host": "x"}})

    async def send_raw(self, frame: str) -> None:
        """Any frame."""
        for socket in list(self._sockets):
            await socket.send_str(frame)

    # --- what a test looks at ---

    @property
    def sent(self) -> list[Params]:
        """Our app's messages that people see, in order."""
        ours = [message for chat in self.messages.values() for message in chat if message.get("user") == US["user_id"]]
        return sorted(ours, key=lambda message: str(message["ts"]))

    @property
    def shown(self) -> list[str]:
        """What they read in them."""
        return [visible(message) for message in self.sent]

    @property
    def connected(self) -> bool:
        return bool(self._sockets)

    async def wait_for(self, condition: Callable[[Self], bool], seconds: float = 60) -> None:
        """Return as soon as `condition` holds; looked at after every change."""
        async with asyncio.timeout(seconds):
            while not condition(self):
                await self._changed.wait()

    def named(self, method: str) -> list[Params]:
        """The parameters of every call of `method`."""
        return [params for name, params in self.calls if name == method]

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- Socket Mode ---

    async def _link(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False, timeout=0.1)
        await socket.prepare(request)
        assert isinstance(request.transport, asyncio.Transport)
        self._transports[socket] = request.transport
        try:
            await socket.send_json({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A1"}})
            for delivery in self.pending:
                delivery.due = 0.0
            self._sockets.append(socket)
            self.sockets_opened += 1
            self._notify()
            async for message in socket:
                if self.frozen:
                    continue
                if message.type is WSMsgType.PING:
                    await socket.pong(message.data)
                elif message.type is WSMsgType.TEXT:
                    self._acknowledge(json.loads(message.data)["envelope_id"])
        finally:
            del self._transports[socket]
            if socket in self._sockets:
                self._sockets.remove(socket)
            self._notify()
        return socket

    def _acknowledge(self, envelope: str) -> None:
        self.pending = [delivery for delivery in self.pending if envelope not in delivery.envelopes]
        self._notify()

    async def _deliver_for_ever(self) -> None:
        while True:
            for delivery in list(self.pending):
                if self._sockets and not self.frozen and delivery.due <= time.monotonic():
                    await self._deliver(delivery)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.retry_seconds / 4):
                    await self._changed.wait()

    async def _deliver(self, delivery: Delivery) -> None:
        envelope = f"env-{next(self._ids)}"
        delivery.envelopes.add(envelope)
        body = {"envelope_id": envelope, "type": delivery.type, "payload": delivery.payload}
        body |= {"retry_attempt": delivery.attempts, "retry_reason": "timeout" if delivery.attempts else ""}
        delivery.attempts += 1
        delivery.due = time.monotonic() + self.retry_seconds
        with suppress(ConnectionError):
            await self._sockets[-1].send_json(body | {"accepts_response_payload": delivery.type != "events_api"})
        self._notify()

    # --- the Web API ---

    async def _api(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        params = await _params(request)
        self.calls.append((method, params))
        try:
            result = self._answer(method, request.headers.get("Authorization", ""), params)
        except Refusal as refusal:
            return refusal.response()
        except Lost:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        finally:
            self._notify()
        return web.json_response({"ok": True, **result})

    def _answer(self, method: str, authorization: str, params: Params) -> Params:
        self._check_token(method, authorization)
        if self._faults.get(method):
            raise self._faults[method].pop(0)
        act = _METHODS.get(method)
        if act is None:
            raise Refusal("unknown_method")
        result = act(self, params)
        if method in self._garbled:
            self._garbled.remove(method)
            return {}
        if self._drops.get(method, 0) > 0:
            self._drops[method] -= 1
            raise Lost
        return result

    def _check_token(self, method: str, given: str) -> None:
        expected = self.app_token if method == "apps.connections.open" else self.bot_token
        if self.revoked:
            raise Refusal("token_revoked")
        if given != f"Bearer {expected}":
            raise Refusal("invalid_auth" if given else "not_authed")

    def _auth_test(self, _: Params) -> Params:
        return dict(US)

    def _open(self, _: Params) -> Params:
        return {"url": f"ws://127.0.0.1:{self.port}/link?ticket={next(self._ids)}&app_id=A1"}

    def _users_info(self, params: Params) -> Params:
        if params["user"] not in self.names:
            raise Refusal("user_not_found")
        name = self.names[params["user"]]
        zone = {"tz": self.zones[params["user"]]} if params["user"] in self.zones else {"tz": None}
        return {"user": {"id": params["user"], "name": name.lower(), "profile": {"display_name": name}, **zone}}

    def _post(self, params: Params) -> Params:
        return {"ts": self._show(params["channel"], params)["ts"], "channel": params["channel"]}

    def _show(self, chat: str, params: Params) -> Params:
        if chat not in self.messages:
            raise Refusal("channel_not_found")
        if not str(params.get("text") or "").strip() and not params.get("blocks") and not params.get("files"):
            raise Refusal("no_text")
        for button in _buttons(params):
            if len(button["text"]["text"]) > 75 or len(button["value"]) > 2000:
                raise Refusal("invalid_blocks")
        kept = {"text", "thread_ts", "blocks", "metadata", "files", "markdown"}
        message = {"type": "message", "ts": self._ts(), "user": US["user_id"], "bot_id": US["bot_id"]}
        message |= {name: params[name] for name in kept if params.get(name)}
        self.messages[chat].append(message)
        return message

    def _update(self, params: Params) -> Params:
        message = self._ours(params)
        if message.get("streaming"):
            raise Refusal("streaming_state_conflict")
        if len(params["text"]) > LONGEST_UPDATE:
            raise Refusal("msg_too_long")
        for name in ("blocks", "markdown"):
            message.pop(name, None)
        message |= {name: params[name] for name in ("text", "blocks", "metadata") if params.get(name)}
        return {"ts": message["ts"], "channel": params["channel"]}

    def _delete(self, params: Params) -> Params:
        self.messages[params["channel"]].remove(self._ours(params))
        return {"ts": params["ts"]}

    def _start_stream(self, params: Params) -> Params:
        chat = params["channel"]
        if not params.get("thread_ts"):
            raise Refusal("invalid_thread_ts")
        if not chat.startswith("D") and not (params.get("recipient_user_id") and params.get("recipient_team_id")):
            raise Refusal("missing_recipient_user_id")
        message = self._show(chat, {"text": " ", **params, "blocks": [{"type": "rich_text"}]})
        message |= {"text": "", "markdown": _markdown(params), "streaming": True}
        return {"ts": message["ts"], "channel": chat}

    def _append_stream(self, params: Params) -> Params:
        message = self._streaming(params)
        if len(_markdown(params)) > LONGEST_STREAM:
            raise Refusal("msg_too_long")
        message["markdown"] += _markdown(params)
        return {"ts": message["ts"], "channel": params["channel"]}

    def _stop_stream(self, params: Params) -> Params:
        message = self._streaming(params)
        message["markdown"] += _markdown(params)
        message |= {"streaming": False} | ({"metadata": params["metadata"]} if params.get("metadata") else {})
        return {"ts": message["ts"], "channel": params["channel"]}

    def expire_streams(self) -> None:
        """Slack ends a stream that nothing is added to for some minutes."""
        for message in self.sent:
            message["streaming"] = False

    def _streaming(self, params: Params) -> Params:
        message = self._ours(params)
        if not message.get("streaming"):
            raise Refusal("message_not_in_streaming_state")
        return message

    def _history(self, params: Params) -> Params:
        return self._page(reversed(self._chat(params)), params)

    def _replies(self, params: Params) -> Params:
        thread = params["ts"]
        found = [message for message in self._chat(params) if thread in (message["ts"], message.get("thread_ts"))]
        if not found:
            raise Refusal("thread_not_found")
        return self._page(iter(found), params)

    def _page(self, messages: Iterator[Params], params: Params) -> Params:
        oldest = float(params.get("oldest") or 0)
        found = [message for message in messages if float(message["ts"]) > oldest]
        if params.get("include_all_metadata") not in {"1", True}:
            found = [{name: message[name] for name in message if name != "metadata"} for message in found]
        start, count = int(params.get("cursor") or 0), min(int(params.get("limit") or 100), self.page)
        after = str(start + count) if start + count < len(found) else ""
        return {"messages": found[start : start + count], "response_metadata": {"next_cursor": after}}

    def _react(self, params: Params) -> Params:
        reaction = (params["channel"], params["timestamp"], params["name"])
        self._find(params["channel"], params["timestamp"])
        if reaction in self.reactions:
            raise Refusal("already_reacted")
        self.reactions.append(reaction)
        return {}

    def _unreact(self, params: Params) -> Params:
        reaction = (params["channel"], params["timestamp"], params["name"])
        if reaction not in self.reactions:
            raise Refusal("no_reaction")
        self.reactions.remove(reaction)
        return {}

    def _set_status(self, params: Params) -> Params:
        self.statuses.append((params["channel_id"], params["thread_ts"], params["status"]))
        return {}

    def _suggest(self, params: Params) -> Params:
        titles = [prompt["title"] for prompt in params["prompts"] if prompt["message"]]
        self.suggested.append((params["channel_id"], params["thread_ts"], titles))
        return {}

    def _files_info(self, params: Params) -> Params:
        if params["file"] not in self.files:
            raise Refusal("file_not_found")
        return {"file": self.files[params["file"]]}

    def _upload_url(self, params: Params) -> Params:
        id = self.file(b"", params["filename"], "application/octet-stream")
        return {"upload_url": f"http://127.0.0.1:{self.port}/upload/{id}", "file_id": id}

    def _complete(self, params: Params) -> Params:
        chat = params["channel_id"]
        for each in json.loads(params["files"]):
            file = self.files[each["id"]]
            if file["shares"]:
                raise Refusal("file_already_completed")
            shown = {"text": params.get("initial_comment"), "thread_ts": params.get("thread_ts"), "files": [file]}
            file |= {"size": len(self.content[each["id"]]), "title": each.get("title")}
            file["shares"] = {"private": {chat: [{"ts": self._show(chat, shown)["ts"]}]}}
        return {"files": [self.files[each["id"]] for each in json.loads(params["files"])]}

    async def _reply(self, request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers
        if self._faults.get("reply"):
            return self._faults["reply"].pop(0).response()
        if sum(reply["to"] == request.path for reply in self.replies) == REPLIES:
            return web.Response(status=404, text="used_url")
        self.replies.append(await request.json() | {"to": request.path})
        self._notify()
        return web.Response(text="ok")

    async def _upload(self, request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers
        if self._faults.get("upload"):
            return self._faults["upload"].pop(0).response()
        self.content[request.match_info["id"]] = await request.read()
        return web.Response(text="OK")

    async def _download(self, request: web.Request) -> web.StreamResponse:
        """Who may not see a file gets a page to log in, with status 200."""
        id, token = request.match_info["id"], request.headers.get("Authorization", "")
        self.downloads.append((id, token))
        if self._faults.get("download"):
            return self._faults["download"].pop(0).response()
        if token != f"Bearer {self.bot_token}" or id in self.locked:
            return web.Response(text="<html>Sign in</html>", content_type="text/html")
        if id not in self.content:
            return web.Response(status=404)
        if self._drops.get("download", 0) > 0:
            return await self._cut(request, self.content[id])
        return web.Response(body=self.content[id], content_type=self.files[id]["mimetype"])

    async def _cut(self, request: web.Request, data: bytes) -> web.StreamResponse:
        self._drops["download"] -= 1
        response = web.StreamResponse(headers={"Content-Length": str(len(data))})
        await response.prepare(request)
        await response.write(data[: len(data) // 2])
        assert request.transport is not None
        request.transport.abort()
        return response

    def _chat(self, params: Params) -> list[Params]:
        if params["channel"] not in self.messages:
            raise Refusal("channel_not_found")
        return self.messages[params["channel"]]

    def _ours(self, params: Params) -> Params:
        message = self._find(params["channel"], params["ts"])
        if message.get("user") != US["user_id"]:
            raise Refusal("cant_update_message")
        return message

    def _find(self, chat: str, ts: str) -> Params:
        for message in self.messages.get(chat, ()):
            if message["ts"] == ts:
                return message
        raise Refusal("message_not_found")

    def _ts(self) -> str:
        return f"{self._began}.{next(self._ids):06d}"


_METHODS: Mapping[str, Callable[[FakeSlack, Params], Params]] = {
    "apps.connections.open": FakeSlack._open,
    "assistant.threads.setStatus": FakeSlack._set_status,
    "assistant.threads.setSuggestedPrompts": FakeSlack._suggest,
    "auth.test": FakeSlack._auth_test,
    "chat.appendStream": FakeSlack._append_stream,
    "chat.delete": FakeSlack._delete,
    "chat.postMessage": FakeSlack._post,
    "chat.startStream": FakeSlack._start_stream,
    "chat.stopStream": FakeSlack._stop_stream,
    "chat.update": FakeSlack._update,
    "conversations.history": FakeSlack._history,
    "conversations.replies": FakeSlack._replies,
    "files.completeUploadExternal": FakeSlack._complete,
    "files.getUploadURLExternal": FakeSlack._upload_url,
    "files.info": FakeSlack._files_info,
    "reactions.add": FakeSlack._react,
    "reactions.remove": FakeSlack._unreact,
    "users.info": FakeSlack._users_info,
}


def visible(message: Params) -> str:
    """What people read: links by their label, entities as characters."""
    if "markdown" in message:
        return str(message["markdown"])
    return unescape(sub(r"<[^<>|]*\|([^<>]*)>", r"\1", message.get("text") or ""))


def _buttons(message: Params) -> list[Params]:
    blocks = message.get("blocks") or ()
    return [button for block in blocks if block["type"] == "actions" for button in block["elements"]]


def buttons(message: Params) -> list[str]:
    """The labels of the buttons under a message."""
    return [button["text"]["text"] for button in _buttons(message)]


def _markdown(params: Params) -> str:
    return params.get("markdown_text") or "".join(chunk.get("text", "") for chunk in params.get("chunks") or ())


async def _params(request: web.Request) -> Params:
    params: Params = dict(request.query)
    if request.content_type == "application/json":
        return params | await request.json()
    return params | {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
