"""Outside agents log their conversations: stored once, in their name, never answered."""

from datetime import UTC, datetime

from gateway.domain.memory.memories import Kind
from tests.web.conftest import BEARER, Web
from tests.web.test_memory_api import agent, found

SESSION = {
    "external_key": "s-1",
    "started_at": "2026-01-05T08:00:00Z",
    "messages": [
        {"external_id": "1", "role": "user", "text": "The heron nests at the weir", "at": "2026-01-05T08:00:01Z"},
        {"external_id": "2", "role": "assistant", "text": "Noted: the heron, the weir", "at": "2026-01-05T08:00:02Z"},
        {"external_id": "3", "role": "tool", "text": "heron.json", "at": "2026-01-05T08:00:03Z"},
        {"external_id": "4", "role": "assistant", "text": "HEARTBEAT_OK heron", "at": "2026-01-05T08:00:04Z"},
        {"external_id": "5", "role": "user", "text": "ok", "at": "2026-01-05T08:00:05Z"},
        {"external_id": "6", "role": "user", "text": "Remember that the otter eats trout", "at": "2026-01-05T08:01Z"},
    ],
}


async def test_a_log_is_stored_once_filtered_searchable_and_nothing_is_answered(web: Web) -> None:
    a, b = await agent(web, "a"), await agent(web, "b")
    asked = {"sessions": [SESSION], "skip": ["heartbeat_ok*"], "min_length": 3, "remember": True}
    first = (await web.client.post("/api/log", json=asked, headers=a)).json()
    again = (await web.client.post("/api/log", json=asked, headers=a)).json()
    alone = (await web.client.post("/api/log", json=SESSION, headers=b)).json()

    assert (first["messages"], first["memories"], first["known"]) == (3, 1, 0)
    assert first["passed"] == {"role": 1, "pattern": 1, "length": 1}
    assert (again["messages"], again["memories"], again["known"]) == (0, 0, 4)
    assert again["sessions"] == first["sessions"]
    assert alone["messages"] == 5
    assert alone["sessions"][0]["session_id"] != first["sessions"][0]["session_id"]

    assert "The heron nests at the weir" in await found(web, a, "heron weir", kinds=["turn"])
    assert await found(web, a, "otter trout", kinds=["memory"]) == ["the otter eats trout"]
    assert await found(web, BEARER, "heron weir otter trout") == []
    turns = await web.path.rows(
        "select agent, label, created_at from memories where kind = $1 and agent = 'a' order by id", Kind.TURN
    )
    assert turns[0] == ("a", 2, datetime(2026, 1, 5, 8, 0, 1, tzinfo=UTC))
    assert await web.path.rows("select 1 from messages where closed_at is null and kind = 'user'") == []
    assert await web.path.rows("select 1 from tasks where kind = 'agent'") == []
    assert web.model.prompts == []


async def test_a_session_that_ends_is_summarised_once_more_was_said_again(web: Web) -> None:
    web.path.worker.limit(0)
    a = await agent(web, "a")
    for _ in range(2):
        ended = (await web.client.post("/api/log", json=SESSION | {"end": True}, headers=a)).json()["sessions"]
    assert ended[0]["ended"]
    queued = await web.path.rows("select input ->> 'session' from tasks where kind = 'summarise'")
    assert queued == [(ended[0]["session_id"],)]
