import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.domain.channels.channel import WebhookReply
from gateway.domain.conversation.model import ToolCall
from gateway.domain.errors import DatabaseDown
from gateway.domain.health import ChannelVitals, LoopLag, MemoryUse, Vitals
from gateway.store.people import tokens
from gateway.store.work.steps import ModelUse
from gateway.web.backend import StatusReport
from tests.web.conftest import BEARER, Running, Web
from tests.web.scripted import Fails, Wait


async def send(web: Web, text: str, client_id: str = "1", **more: object) -> dict[str, object]:
    body = {"text": text, "client_id": client_id, **more}
    answer = await web.client.post("/api/messages", json=body, headers=BEARER)
    assert answer.status_code == 202
    return answer.json()


async def answer_to(web: Web, sent: Mapping[str, object]) -> dict[str, object]:
    answer = await web.client.get(f"/api/answers/{sent['inbox_id']}", headers=BEARER)
    assert answer.status_code == 200
    return answer.json()


@asynccontextmanager
async def events(web: Web, chat: str = "main") -> AsyncIterator[AsyncIterator[dict[str, object]]]:
    async with web.client.stream("GET", f"/api/events?chat={chat}", headers=BEARER) as stream:

        async def parsed() -> AsyncIterator[dict[str, object]]:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

        yield parsed()


async def until(seen: AsyncIterator[dict[str, object]], type: str) -> list[dict[str, object]]:
    found = []
    async for event in seen:
        found.append(event)
        if event["type"] == type:
            return found
    raise AssertionError(f"the stream ended without {type}")


async def test_a_message_is_taken_and_its_answer_waited_for(web: Web):
    sent = await send(web, "hello")
    assert sent["kind"] == "message"
    answer = await answer_to(web, sent)
    assert answer == {
        "text": "re: hello",
        "notice": False,
        "message_id": answer["message_id"],
        "files": [],
        "tokens_in": 11,
        "tokens_out": 7,
        "cost_usd": 0.002,
    }


async def test_the_same_client_id_is_taken_once(web: Web):
    one, two = await send(web, "hello", "x"), await send(web, "hello", "x")
    assert (one["duplicate"], two["duplicate"]) == (False, True)
    assert one["inbox_id"] == two["inbox_id"]
    await answer_to(web, two)
    assert len(web.model.prompts) == 1


async def test_a_command_is_answered_by_a_notice(web: Web):
    sent = await send(web, "/help")
    assert (sent["kind"], sent["message_id"]) == ("command", None)
    assert "/stop: " in (await answer_to(web, sent))["text"]


async def test_an_unknown_command_is_ignored_with_a_reason(web: Web):
    sent = await send(web, "/nonsense")
    assert (sent["kind"], sent["reason"], sent["inbox_id"]) == ("ignored", "unknown command", None)


async def test_an_answer_that_is_not_there_yet_is_no_content(web: Web):
    middle = Wait()
    web.model.says(middle, "done")
    sent = await send(web, "go")
    empty = await web.client.get(f"/api/answers/{sent['inbox_id']}?wait=0", headers=BEARER)
    middle.over.set()
    assert empty.status_code == 204
    assert (await answer_to(web, sent))["text"] == "done"


async def test_answers_to_others_are_not_told(web: Web):
    sent = await send(web, "hello")
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "other", ["chat"])
    other = {"Authorization": f"Bearer {plain}"}
    assert (await web.client.get(f"/api/answers/{sent['inbox_id']}", headers=other)).status_code == 404
    assert (await web.client.get("/api/answers/999999", headers=BEARER)).status_code == 404
    assert (await web.client.get("/api/answers/0", headers=BEARER)).status_code == 400


async def test_events_tell_a_turn_from_beginning_to_end(web: Web):
    await answer_to(web, await send(web, "hello", "0"))
    web.model.says("I think", Fails(), "Let me look.", ToolCall("c1", "list_files", '{"path": "."}'))
    web.model.says("Nothing there.")
    async with events(web) as stream:
        [snapshot] = await until(stream, "snapshot")
        assert (len(snapshot["messages"]), snapshot["written"]) == (2, None)
        sent = await send(web, "what is there?")
        told = await until(stream, "turn_ended")
    texts = [event for event in told if event["type"] in {"text", "text_dropped", "tool_started", "tool_ended"}]
    assert [event["type"] for event in texts] == [
        "text",
        "text_dropped",
        "text",
        "tool_started",
        "tool_ended",
        "text",
    ]
    assert texts[3]["name"] == "list_files"
    assert texts[4]["failed"] is False
    stored = [event["message"] for event in told if event["type"] == "message"]
    assert stored[-1]["text"] == "Nothing there."
    assert [event["messages"] for event in told if event["type"] == "turn_started"] == [[sent["message_id"]]]


async def test_the_first_message_of_all_is_seen_by_who_was_there_before(web: Web):
    async with events(web) as stream:
        [empty] = await until(stream, "snapshot")
        await send(web, "hello")
        [first] = await until(stream, "snapshot")
        told = first["messages"]
        if "re: hello" not in [row["text"] for row in told]:  # else the turn ended before this snapshot was taken
            told += [event["message"] for event in await until(stream, "turn_ended") if event.get("message")]
    assert (empty["session_id"], empty["messages"]) == (None, [])
    assert "hello" in [row["text"] for row in told]


async def test_a_snapshot_holds_what_was_said_and_what_is_being_written(web: Web):
    await answer_to(web, await send(web, "one"))
    middle = Wait()
    web.model.says("half", middle)
    await send(web, "two", "2")
    await middle.reached.wait()
    async with events(web) as stream:
        [snapshot] = await until(stream, "snapshot")
    assert [row["text"] for row in snapshot["messages"]] == ["one", "re: one", "two"]
    assert snapshot["written"] == "half"
    await send(web, "/stop", "3")


async def test_events_go_on_in_the_next_session(web: Web):
    await answer_to(web, await send(web, "one"))
    async with events(web) as stream:
        first = (await until(stream, "snapshot"))[-1]
        await send(web, "/new", "2")
        second = (await until(stream, "snapshot"))[-1]
    assert second["session_id"] != first["session_id"]
    assert [row["kind"] for row in second["messages"]] == ["notice"]


async def test_chats_are_apart(web: Web):
    one = await send(web, "hello", "1", chat="a")
    two = await send(web, "hello", "1", chat="b")
    assert one["session_id"] != two["session_id"]
    assert not two["duplicate"]


async def test_the_status_and_the_metrics_tell_the_same(web: Web):
    status = (await web.client.get("/api/status", headers=BEARER)).json()
    metrics = (await web.client.get("/metrics", headers=BEARER)).text
    assert (status["version"], status["model"], status["queue"]) == ("1.2.3", "scripted", {"running": 1})
    assert status["today"]["cost_usd"] == 0.5
    assert "\nsupaclaw_cost_usd_today 0.5\n" in metrics
    assert 'supaclaw_tasks{status="running"} 1\n' in metrics
    assert "\nsupaclaw_healthy 1\n" in metrics
    assert status["vitals"] == {
        "loop": None,
        "memory": None,
        "channels": {},
        "unclean_ends": 0,
        "checkpoints": None,
        "files": None,
        "heartbeat": None,
        "jobs": {},
    }


async def test_the_gateways_condition_is_told_as_far_as_it_is_known(running: Running):
    vitals = Vitals(
        LoopLag(7.5, 2.0, 250.0),
        MemoryUse(300, 200, shedding=True),
        {"telegram": ChannelVitals("open", 12.5)},
        jobs={"log pruning": datetime(2026, 11, 22, 14, tzinfo=UTC), "heartbeat": None},
    )

    async def status() -> StatusReport:
        return StatusReport("1", datetime.now(UTC), "m", {}, {"telegram": "open"}, ModelUse(0, 0, 0, 0), vitals)

    started = await running.start(status=status)
    told = (await started.web.client.get("/api/status", headers=BEARER)).json()
    metrics = (await started.web.client.get("/metrics", headers=BEARER)).text
    assert told["vitals"] == {
        "loop": {"worst_ms": 7.5, "p99_ms": 2.0, "worst_ever_ms": 250.0},
        "memory": {"used": 300, "ceiling": 200, "shedding": True},
        "channels": {"telegram": {"state": "open", "heard_ago": 12.5}},
        "unclean_ends": 0,
        "checkpoints": None,
        "files": None,
        "heartbeat": None,
        "jobs": {"log pruning": "2026-11-22T14:00:00Z", "heartbeat": None},
    }
    assert "\nsupaclaw_event_loop_late_seconds 0.0075\n" in metrics
    assert "\nsupaclaw_memory_bytes 300\n" in metrics
    assert "\nsupaclaw_shedding 1\n" in metrics
    assert '\nsupaclaw_channel_open{channel="telegram"} 1\n' in metrics
    known = set(re.findall(r"^# TYPE (\w+) gauge$", metrics, re.MULTILINE))
    documented = named_in("docs/deploy.md", "## Metrics and alerts")
    assert known == documented == named_in("deploy/grafana/dashboard.json")
    assert named_in("deploy/grafana/alerts.yaml") <= known
    await started.stop()


def named_in(file: str, behind: str = "") -> set[str]:
    """The metrics that a file names, behind this heading."""
    text = (Path(__file__).parents[2] / file).read_text("utf-8")
    return set(re.findall(r"\bsupaclaw_[a-z_]+", text[text.index(behind) :]))


async def test_health_says_only_whether_it_is_well(running: Running):
    well = await running.start()
    unwell = await running.start(healthy=lambda: False)
    waiting = await running.start(healthy=lambda: False, waits_for_database=lambda: True)
    answers = [await started.web.client.get("/health") for started in (well, unwell, waiting)]
    assert [(answer.status_code, answer.text) for answer in answers] == [
        (200, "ok\n"),
        (503, "unwell\n"),
        (503, "waiting\n"),
    ]
    for started in (well, unwell, waiting):
        await started.stop()


async def test_what_is_only_in_the_journal_is_taken_up_again_when_asked(web: Web):
    answer = await web.client.post("/api/requeue", headers=BEARER)
    assert (answer.status_code, answer.json()) == (200, {"requeued": 0})
    assert (await web.client.post("/api/requeue")).status_code == 401


async def test_sessions_and_tasks_can_be_looked_up(web: Web):
    sent = await send(web, "hello")
    await answer_to(web, sent)
    [session] = (await web.client.get("/api/sessions", headers=BEARER)).json()
    assert (session["id"], session["channel"]) == (sent["session_id"], "terminal")
    async with web.backend.database.connection() as conn:
        id = await conn.fetchval("select id from tasks")
    task = (await web.client.get(f"/api/tasks/{id}", headers=BEARER)).json()
    assert (task["id"], task["kind"], task["status"]) == (str(id), "chat", "completed")
    missing = await web.client.get("/api/tasks/6f2c1f0e-0000-4000-8000-000000000000", headers=BEARER)
    assert missing.status_code == 404


async def test_dead_letters_are_visible(web: Web):
    await answer_to(web, await send(web, "hello"))
    async with web.backend.database.connection() as conn:
        await conn.execute(
            """insert into outbox
                 (principal_id, address_id, message_id, text, state, error)
               select principal_id, address_id, id, text, 'uncertain', 'interrupted'
               from messages where kind = 'user'"""
        )
    [letter] = (await web.client.get("/api/outbox?state=uncertain", headers=BEARER)).json()
    assert (letter["text"], letter["error"]) == ("hello", "interrupted")
    assert (await web.client.get("/api/outbox", headers=BEARER)).json() == []
    assert (await web.client.get("/api/outbox?state=lost", headers=BEARER)).status_code == 400


class PushedTo:
    """A channel that checks a secret, as platforms' webhooks do."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def refuses(self, headers: Mapping[str, str]) -> WebhookReply | None:
        return None if headers.get("x-secret") == "s" else WebhookReply(401, "wrong secret")

    async def deliver(self, body: bytes) -> WebhookReply:
        self.bodies.append(body)
        return WebhookReply(200, "taken")


async def test_a_webhook_reaches_its_channel_without_our_credentials(running: Running):
    channel = PushedTo()
    started = await running.start(webhooks=lambda: {"telegram": channel})
    client = started.web.client
    good = await client.post("/webhook/telegram", content=b"{}", headers={"X-Secret": "s"})
    bad = await client.post("/webhook/telegram", content=b"{}")
    other = await client.post("/webhook/slack", content=b"{}")
    await started.stop()
    assert (good.status_code, good.text, channel.bodies) == (200, "taken", [b"{}"])
    assert (bad.status_code, other.status_code) == (401, 404)


async def test_a_database_that_is_down_acknowledges_nothing(running: Running):
    class Down:
        async def accept(self, batch: object) -> tuple[()]:
            raise DatabaseDown("no connection")

    started = await running.start(inbox=Down())
    body = {"text": "hi", "client_id": "1"}
    answer = await started.web.client.post("/api/messages", json=body, headers=BEARER)
    await started.stop()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


async def test_streams_end_when_the_gateway_stops(running: Running):
    started = await running.start()
    async with events(started.web) as stream:
        await until(stream, "snapshot")
        started.tasks[-1].cancel()
        with pytest.raises(AssertionError, match="the stream ended"):
            async with asyncio.timeout(5):
                await until(stream, "never")
    await started.stop()


@pytest.mark.parametrize("field", ["client_id", "chat"])
async def test_a_name_that_cannot_be_stored_is_refused(web: Web, field: str):
    body = {"text": "hello", "client_id": "1", "chat": "main", field: "a\0b"}
    answer = await web.client.post("/api/messages", json=body, headers=BEARER)
    assert (answer.status_code, field in answer.text) == (400, True)
    assert (await web.client.get("/api/events?chat=%00", headers=BEARER)).status_code == 400
