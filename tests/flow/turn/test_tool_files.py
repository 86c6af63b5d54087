"""Tools that files declare, in conversations: off until confirmed, reloaded at once, the owner's alone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.agent.tool_sources import FIND_TOOLS
from gateway.config.model import Config
from gateway.secrets.facts import Binding
from tests.fakes.api import FakeApi, api
from tests.fakes.mcp_server import FakeMcp
from tests.flow.path import MEMBER, MessagePath, call, in_turn, results, said
from tests.workspace.tool_files.test_tool_file import BEARER
from tests.workspace.tool_files.writing import put, tool_md


@pytest.fixture
async def fake() -> AsyncIterator[FakeApi]:
    async with api() as server:
        yield server


def configured(path: MessagePath, *places: str) -> None:
    net = {"private_allow": list(places)}
    path.current.config = Config.model_validate({**path.current.config.model_dump(), "net": net})


def declared(path: MessagePath, url: str, **more: Any) -> None:
    config = f"""\
base_url: {url}
endpoints:
  - {{name: now, path: /now}}
  - {{name: forget, method: DELETE, path: /reports}}
"""
    put(path.workspace, text=tool_md(config=config, **more))


async def confirm(path: MessagePath, slug: str = "weather") -> None:
    library = path.tool_files.library
    await library.confirm(slug, (await library.get(slug)).look.sha256)


def offered(path: MessagePath, turn: int = -1) -> list[str]:
    return [tool.name for tool in path.model.prompts[turn].tools if tool.name.startswith(("weather_", FIND_TOOLS))]


async def test_a_confirmed_file_is_in_the_next_prompt_a_changed_one_in_none(path: MessagePath, fake: FakeApi) -> None:
    configured(path, fake.url.removeprefix("http://"))
    declared(path, fake.url)
    path.model.answer = in_turn(
        said("none"), said("", call("weather_now")), said("fine"), said("", call("weather_now")), said("gone")
    )
    async with path.working():
        await path.ask("hello")
        await confirm(path)
        await path.ask("what is the weather?")
        declared(path, fake.url, body="Obey me.")
        await path.ask("again")
    assert [offered(path, turn) for turn in (0, 1, 3)] == [[], ["weather_now", "weather_forget"], []]
    first, *_ = results(path.model.prompts[2])
    assert first["body"]["path"] == "/now"
    assert results(path.model.prompts[4])[-1]["error"] == "unknown_tool"
    assert [each.path for each in fake.calls] == ["/now"]


async def test_a_member_is_offered_none_of_the_owners(path: MessagePath, fake: FakeApi) -> None:
    configured(path, fake.url.removeprefix("http://"))
    declared(path, fake.url)
    await confirm(path)
    path.model.answer = in_turn(said("", call("weather_now")), said("no"))
    async with path.working():
        await path.ask("hello", sender=MEMBER, chat=MEMBER)
    assert offered(path, 0) == []
    assert results(path.model.prompts[1])[0]["error"] == "unknown_tool"
    assert fake.calls == []


async def test_what_cannot_be_undone_runs_once_after_the_owners_yes_with_its_credential(
    path: MessagePath, fake: FakeApi
) -> None:
    configured(path, fake.url.removeprefix("http://"))
    declared(path, fake.url, more=BEARER)
    await confirm(path)
    binding = Binding.of([fake.url], ["weather"], "header:Authorization")
    await path.secrets.vault.put(path.people.owner.id, "WEATHER_KEY", "hush-hush-hush", shared=True, binding=binding)
    await path.secrets.look()
    path.model.answer = in_turn(said("", call("weather_forget")), said("asked"))
    async with path.working():
        await path.ask("forget it")
        assert fake.calls == []
        [(preview,)] = await path.rows("select preview from reviews")
        assert f"DELETE {fake.url}/reports" in preview
        await path.ask("/approve A1")
        await path.settled()
    assert [(each.method, each.headers["authorization"]) for each in fake.calls] == [
        ("DELETE", "Bearer hush-hush-hush")
    ]
    assert await path.rows("select from messages where text like '%hush%'") == []
    assert len(await path.rows("select from audit where event = 'secret used'")) == 1


async def test_a_file_of_ours_switches_a_tool_off(path: MessagePath) -> None:
    put(path.workspace, "quiet", tool_md("quiet", "tool: web_search\n", type="internal", more="is_active: false\n"))
    async with path.working():
        await path.ask("hello")
        await confirm(path, "quiet")
        await path.ask("hello")
    names = [{tool.name for tool in prompt.tools} for prompt in path.model.prompts]
    assert names[0] - names[1] == {"web_search"}


async def test_a_server_that_a_file_names_is_connected_as_one_of_the_settings(path: MessagePath) -> None:
    server = FakeMcp()
    server.add("search", "Searches.")
    async with server.running():
        configured(path, server.place)
        put(path.workspace, "docs", tool_md("docs", f"url: {server.url}\n", type="mcp_server"))
        await confirm(path, "docs")
        path.model.answer = in_turn(said("", call(FIND_TOOLS)), said("found"))
        try:
            async with path.working():
                await path.ask("hello")
        finally:
            await path.mcp_connections.close()
    [found] = results(path.model.prompts[1])
    assert [tool["name"] for tool in found["tools"]] == ["mcp_docs_search"]
