import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, ServerDisconnectedError, WSMsgType

from tests.fakes.slack import FakeSlack, Params


class App:
    """An app that speaks plain HTTP and websocket."""

    def __init__(self, http: ClientSession, slack: FakeSlack) -> None:
        self._http = http
        self._slack = slack

    async def call(self, method: str, token: str = "", **params: object) -> Params:
        headers = {"Authorization": f"Bearer {token or self._slack.bot_token}"}
        async with self._http.post(f"{self._slack.url}{method}", json=params, headers=headers) as response:
            answer: Params = await response.json()
            return answer | {"status": response.status, "wait": response.headers.get("Retry-After")}

    async def post(self, url: str, body: Params) -> int:
        async with self._http.post(url, json=body) as response:
            return response.status

    async def connect(self) -> ClientWebSocketResponse:
        opened = await self.call("apps.connections.open", self._slack.app_token)
        socket = await self._http.ws_connect(opened["url"], autoping=False)
        assert (await socket.receive_json())["type"] == "hello"
        return socket


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack(retry_seconds=0.05) as slack:
        yield slack


@pytest.fixture
async def app(slack: FakeSlack) -> AsyncIterator[App]:
    async with ClientSession() as http:
        yield App(http, slack)


async def test_an_envelope_comes_again_until_it_is_acknowledged(slack: FakeSlack, app: App) -> None:
    slack.say("hello")
    socket = await app.connect()
    first, second = await socket.receive_json(), await socket.receive_json()
    assert first["envelope_id"] != second["envelope_id"]
    assert first["payload"] == second["payload"]
    assert (first["retry_attempt"], second["retry_attempt"]) == (0, 1)
    await socket.send_str(json.dumps({"envelope_id": first["envelope_id"]}))
    await slack.wait_for(lambda slack: not slack.pending)


async def test_an_unacknowledged_envelope_comes_at_once_to_a_new_socket(slack: FakeSlack, app: App) -> None:
    slack.retry_seconds = 60
    slack.say("hello")
    socket = await app.connect()
    first = await socket.receive_json()
    slack.kill()
    assert (await socket.receive()).type in {WSMsgType.CLOSED, WSMsgType.ERROR}
    second = await (await app.connect()).receive_json()
    assert second["payload"] == first["payload"]


async def test_a_frozen_socket_answers_no_ping(slack: FakeSlack, app: App) -> None:
    socket = await app.connect()
    await socket.ping(b"one")
    assert (await socket.receive()).data == b"one"
    slack.frozen = True
    await socket.ping(b"two")
    with pytest.raises(TimeoutError):
        await socket.receive(timeout=0.1)


@pytest.mark.parametrize(
    ("method", "token", "error"),
    [
        ("auth.test", "xoxb-wrong", "invalid_auth"),
        ("auth.test", "xapp-1-abc", "invalid_auth"),
        ("apps.connections.open", "xoxb-1-abc", "invalid_auth"),
        ("chat.nonsense", "", "unknown_method"),
    ],
)
async def test_each_token_opens_its_own_doors(app: App, method: str, token: str, error: str) -> None:
    assert (await app.call(method, token))["error"] == error


async def test_faults_come_once_and_in_order(slack: FakeSlack, app: App) -> None:
    slack.fault("auth.test", "ratelimited", status=429, Retry_After="3")
    slack.fault("auth.test", "fatal_error")
    refused = await app.call("auth.test")
    assert (refused["status"], refused["wait"]) == (429, "3")
    assert (await app.call("auth.test"))["error"] == "fatal_error"
    assert (await app.call("auth.test"))["ok"]


async def test_a_lost_answer_was_carried_out(slack: FakeSlack, app: App) -> None:
    slack.drop_response("chat.postMessage")
    with pytest.raises(ServerDisconnectedError):
        await app.call("chat.postMessage", channel="77", text="hi")
    assert slack.shown == ["hi"]


@pytest.mark.parametrize(
    ("method", "params", "error"),
    [
        ("chat.postMessage", {"channel": "C404", "text": "x"}, "channel_not_found"),
        ("chat.postMessage", {"channel": "77", "text": " "}, "no_text"),
        ("chat.update", {"channel": "77", "ts": "1.1", "text": "x"}, "message_not_found"),
        ("chat.startStream", {"channel": "77", "markdown_text": "x"}, "invalid_thread_ts"),
        ("chat.startStream", {"channel": "77", "thread_ts": "1.1"}, "missing_recipient_user_id"),
        ("conversations.replies", {"channel": "77", "ts": "1.1"}, "thread_not_found"),
        ("reactions.remove", {"channel": "77", "timestamp": "1.1", "name": "eyes"}, "no_reaction"),
    ],
)
async def test_what_slack_would_refuse_is_refused(app: App, method: str, params: dict[str, Any], error: str) -> None:
    assert (await app.call(method, **params))["error"] == error


async def test_a_stream_grows_until_it_is_stopped_and_cannot_be_replaced_before(slack: FakeSlack, app: App) -> None:
    slack.messages["D1"] = []
    at = {"channel": "D1", "ts": (await app.call("chat.startStream", channel="D1", thread_ts="1.1"))["ts"]}
    assert (await app.call("chat.appendStream", chunks=[{"type": "markdown_text", "text": "a"}], **at))["ok"]
    assert (await app.call("chat.update", text="x", **at))["error"] == "streaming_state_conflict"
    assert (await app.call("chat.stopStream", markdown_text="b", **at))["ok"]
    assert (await app.call("chat.stopStream", **at))["error"] == "message_not_in_streaming_state"
    assert slack.shown == ["ab"]
    await app.call("chat.update", text="c", **at)
    assert slack.shown == ["c"]


async def test_metadata_is_told_to_those_who_ask_for_it(slack: FakeSlack, app: App) -> None:
    await app.call("chat.postMessage", channel="77", text="x", metadata={"event_type": "e", "event_payload": {}})
    (plain,) = (await app.call("conversations.history", channel="77"))["messages"]
    (full,) = (await app.call("conversations.history", channel="77", include_all_metadata=True))["messages"]
    assert ("metadata" in plain, full["metadata"]["event_type"]) == (False, "e")


async def test_a_command_brings_an_address_for_five_answers_and_its_chat_knows_nothing_of_it(
    slack: FakeSlack, app: App
) -> None:
    slack.command("/claw", "hi", "C9")
    url = (await (await app.connect()).receive_json())["payload"]["response_url"]
    assert [await app.post(url, {"text": "hi"}) for _ in range(6)] == [200] * 5 + [404]
    assert len(slack.replies) == 5
    assert (await app.call("chat.postMessage", channel="C9", text="hi"))["error"] == "channel_not_found"
