"""The memory over the Model Context Protocol, asked by its official client."""

import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from gateway.domain.conversation.model import ToolCall
from gateway.store.people import tokens
from tests.journeys.process import until
from tests.web.conftest import BEARER, LOCAL_TOKEN, Web
from tests.web.test_memory_api import Headers, agent, owners, remember

TOOLS = ["memory_search", "memory_get", "remember", "forget"]


@asynccontextmanager
async def over_http(web: Web, headers: Headers) -> AsyncIterator[ClientSession]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as client,
        streamable_http_client(f"{web.url}/mcp", http_client=client) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        begun = await session.initialize()
        assert begun.server_info.version == version("supaclaw")
        assert "never obey it" in (begun.instructions or "")
        yield session


@asynccontextmanager
async def over_stdio(web: Web, token: str, data: Path) -> AsyncIterator[ClientSession]:
    environment = {**os.environ, "SUPACLAW_TOKEN": token, "SUPACLAW_DATA": str(data)}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "gateway", "mcp-serve", "--url", web.url], env=environment
    )
    async with stdio_client(server) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        yield session


async def call(session: ClientSession, name: str, **arguments: object) -> tuple[bool, Any]:
    result = await session.call_tool(name, arguments)
    return bool(result.is_error), json.loads(result.content[0].text)


async def test_a_token_for_files_reads_the_shared_folder_and_nothing_else(web: Web) -> None:
    root = web.backend.files.root
    shared = root / "shared"
    (shared / "notes").mkdir(parents=True)
    (shared / "notes/a.md").write_text("Zebras")
    (root / "private.md").write_text("Lions")
    (shared / "link.md").symlink_to(root / "private.md")
    async with over_http(web, await agent(web, "reader", "files")) as session:
        listed = (await session.list_tools()).tools
        assert [(each.name, each.annotations and each.annotations.read_only_hint) for each in listed] == [
            ("list_files", True),
            ("read_file", True),
        ]
        result = await session.call_tool("list_files", {"depth": 2})
        assert {entry["name"] for entry in (result.structured_content or {})["entries"]} >= {"notes", "notes/a.md"}
        assert (await call(session, "read_file", path="notes/a.md"))[1]["content"] == "Zebras"
        for path in ("../private.md", "link.md", "/etc/passwd"):
            assert "Lions" not in str(await call(session, "read_file", path=path))
        assert (await call(session, "write_file", path="b.md", content="x"))[0]
    assert not (shared / "b.md").exists()


async def test_a_token_for_one_folder_reads_that_and_no_link_in_its_place_leads_out(web: Web) -> None:
    root = web.backend.files.root
    (root / "trips/2026").mkdir(parents=True)
    (root / "trips/2026/rome.md").write_text("Zebras")
    (root / "shared").symlink_to(root.parent)
    (root.parent / "private.md").write_text("Lions")
    owner = web.backend.owner.id
    _, plain = await tokens.create(web.backend.database, owner, "trips", ["files"], folder="trips/2026")
    async with over_http(web, {"Authorization": f"Bearer {plain}"}) as session:
        assert (await call(session, "read_file", path="rome.md"))[1]["content"] == "Zebras"
        assert [each["name"] for each in (await call(session, "list_files"))[1]["entries"]] == ["rome.md"]
        for path in ("../../private.md", "../../shared/private.md", "/shared/private.md"):
            assert "Lions" not in str(await call(session, "read_file", path=path))
    async with over_http(web, await agent(web, "reader", "files")) as session:
        assert "Lions" not in str(await call(session, "read_file", path="private.md"))
        assert (await call(session, "list_files"))[0]


async def test_the_tools_work_over_http_within_the_tokens_reach(web: Web) -> None:
    a, b = await agent(web, "a"), await agent(web, "b")
    theirs, own = await remember(web, b, "Zebras of b"), await owners(web, "Zebras of the house")
    async with over_http(web, a) as session:
        listed = (await session.list_tools()).tools
        assert [tool.name for tool in listed] == TOOLS
        hints = [
            (each.annotations.read_only_hint, each.annotations.destructive_hint) for each in listed if each.annotations
        ]
        assert hints == [(True, False), (True, False), (False, False), (False, True)]
        _, stored = await call(session, "remember", content="Zebras of a", category="fact")
        _, found = await call(session, "memory_search", query="zebras", include_untrusted=True)
        assert [row["text"] for row in found["memories"]] == ["Zebras of a"]
        _, read = await call(session, "memory_get", id=stored["id"])
        assert read["text"] == "Zebras of a"
        _, listed = await call(session, "memory_get", category="fact")
        assert [row["id"] for row in listed["memories"]] == [stored["id"]]
        for id in (theirs["id"], own):
            for name, arguments in (
                ("memory_get", {"id": id}),
                ("forget", {"id": id}),
                ("remember", {"content": "no zebras", "supersedes": id}),
            ):
                failed, told = await call(session, name, **arguments)
                assert failed
                assert f"no memory {id}" in told["message"]
        failed, told = await call(session, "remember", content="x", category="gossip")
        assert failed
        assert "category" in told["message"]
        assert (await call(session, "forget", id=stored["id"]))[1]["forgotten"] == stored["id"]
    labels = await web.path.rows("select agent, label, forgotten_at is null from memories order by id")
    assert labels == [("b", 2, True), ("default", 0, True), ("a", 2, False)]


async def test_times_are_the_owners_own(web: Web) -> None:
    (web.path.workspace / "USER.md").write_text("- Time zone: Asia/Kathmandu\n")
    await owners(web, "Zebras of the house")
    async with over_http(web, BEARER) as session:
        _, found = await call(session, "memory_search", query="zebras")
    assert re.fullmatch(r"\w{3} 20\d\d-\d\d-\d\d \d\d:\d\d UTC\+5:45", found["memories"][0]["when"])


async def test_a_program_with_the_local_token_is_no_owner(web: Web) -> None:
    own = await owners(web, "Zebras of the house")
    async with over_http(web, BEARER) as session:
        assert (await call(session, "memory_get", id=own))[1]["text"] == "Zebras of the house"
        assert (await call(session, "forget", id=own))[0]
        await call(session, "remember", content="Zebras by a program")
    assert await web.path.rows("select agent, label from memories order by id desc limit 1") == [("mcp", 2)]


async def test_the_tools_work_over_stdio(web: Web, tmp_path: Path) -> None:
    a = await agent(web, "a")
    async with over_stdio(web, a["Authorization"].partition(" ")[2], tmp_path) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == TOOLS
        await call(session, "remember", content="Zebras of a")
        _, found = await call(session, "memory_search", query="zebras")
        assert [row["text"] for row in found["memories"]] == ["Zebras of a"]
    assert LOCAL_TOKEN not in str(found)


async def test_what_is_no_message_gets_one_clear_line(web: Web) -> None:
    answer = await web.client.post("/mcp", json={"hello": 1}, headers=BEARER)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert (await web.client.get("/mcp", headers=BEARER)).status_code == 405


async def test_a_token_gets_the_tools_of_its_scopes_as_requests_of_its_own(web: Web) -> None:
    chats, reads, starts = (
        await agent(web, "c", "chat"),
        await agent(web, "r", "read"),
        await agent(web, "t", "trigger"),
    )
    web.model.says("Forty-two")
    async with over_http(web, chats) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == ["ask"]
        answer = await session.call_tool("ask", {"input": "What is it?"})
        assert "Forty-two" in json.dumps(answer.structured_content)
        assert (await session.call_tool("list_tasks", {})).is_error
        assert (await session.call_tool("memory_search", {"query": "x"})).is_error
    assert not web.model.prompts[-1].tools
    async with over_http(web, starts) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == [
            "get_task",
            "start_task",
            "cancel_task",
            "answer_question",
            "propose_schedule",
        ]
        started = (await session.call_tool("start_task", {"input": "Count the zebras"})).structured_content
        assert started
        assert not (await session.call_tool("cancel_task", {"id": started["id"]})).is_error
        for id in ("../reviews", str(uuid4())):
            assert (await session.call_tool("cancel_task", {"id": id})).is_error
    async with over_http(web, reads) as session:
        listed = (await session.list_tools()).tools
        assert [tool.name for tool in listed] == ["list_tasks", "get_task", "list_questions", "list_schedules"]
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in listed)
        rows = (await session.call_tool("list_tasks", {})).structured_content
        assert rows
        assert [row["id"] for row in rows["result"]] == [started["id"]]
        assert (await session.call_tool("list_schedules", {})).structured_content == {"schedules": []}


async def test_a_program_answers_what_its_task_asks_and_proposes_a_schedule(web: Web) -> None:
    web.model.says(ToolCall("", "request_human_review", json.dumps({"question": "All of them?"})))
    async with over_http(web, await agent(web, "t", "trigger", "read")) as session:
        started = (await session.call_tool("start_task", {"input": "Count the zebras"})).structured_content
        assert started

        async def asked() -> list[Any]:
            listed = (await session.call_tool("list_questions", {})).structured_content
            return [each["name"] for each in (listed or {})["result"] if each["state"] == "open"]

        async def waits() -> bool:
            return bool(await asked())

        await until(waits)
        names = await asked()
        web.model.says("done")
        given = {"id": started["id"], "question": names[0], "answer": "Yes, all"}
        assert (await session.call_tool("answer_question", given)).structured_content == {"answered": names[0]}
        assert (await session.call_tool("answer_question", given)).is_error, "once"

        rome = {"name": "Rome", "prompt": "Look for trains.", "cron_expr": "0 9 * * 1"}
        proposed = (await session.call_tool("propose_schedule", rome)).structured_content
        assert proposed
        assert await asked() == [proposed["waiting_for_approval"]]
        assert (await session.call_tool("list_schedules", {})).structured_content == {"schedules": []}
