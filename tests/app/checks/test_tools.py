import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.agent.mcp import pinned_tools
from gateway.agent.mcp.pinned_tools import Use
from gateway.app.checks.stored import check_tools
from gateway.app.storage.offline import tool_files
from gateway.config.environment import Environment
from gateway.domain.principals import Role
from gateway.net.mcp.server import ToolDefinition
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from tests.app.checks.contexts import Examine, told
from tests.fakes.mcp_server import CITY, FakeMcp
from tests.workspace.tool_files.writing import put, tool_md


@pytest.fixture
def fake() -> Iterator[FakeMcp]:
    """In a thread: the check has an event loop of its own."""
    fake = FakeMcp()
    fake.add("weather", "Tells the weather.")
    fake.add("remove", "Removes a city.")
    with fake.in_a_thread():
        yield fake


@pytest.fixture
def owned(dsn: str) -> str:
    async def add() -> None:
        async with await Database.connect(dsn) as database, database.connection() as conn:
            await principals.add(conn, Role.OWNER, "Ada", [])

    asyncio.run(add())
    return dsn


def settings(dsn: str, place: str = "", **servers: object) -> str:
    return json.dumps({"database": {"url": dsn}, "tools": {"mcp": servers}, "net": {"private_allow": [place]}})


def test_without_servers_and_files_there_is_nothing_to_say(examine: Examine, owned: str) -> None:
    assert examine(check_tools, settings(owned, "10.0.0.1")) == []
    assert examine(check_tools) == []


def test_servers_are_asked_only_live_and_what_waits_is_named(examine: Examine, owned: str, fake: FakeMcp) -> None:
    keyed = {"url": fake.url, "headers": {"Authorization": "Bearer ${secret:WEATHER}"}}
    text = settings(owned, fake.place, w={"url": fake.url}, dead={"url": "http://127.0.0.1:9/mcp"}, keyed=keyed)
    lacks = ("warn", "the MCP server keyed: There is no secret WEATHER")
    quiet = told(examine(check_tools, text))
    assert quiet == [("ok", "the MCP server w"), ("ok", "the MCP server dead"), lacks]
    assert fake.headers == []
    asked = examine(check_tools, text, live=True)
    assert told(asked)[0] == ("ok", "the MCP server w offers 2 tools")
    assert told(asked)[1] == ("warn", "the MCP server dead: Not connected: port 9 isn't a usual web port.")
    assert told(asked)[2] == lacks
    assert told(asked)[3] == ("warn", "mcp_w_remove, mcp_w_weather: new: each call of it asks you")
    assert "supaclaw secrets set WEATHER" in asked[2].fix
    assert told(examine(check_tools, text)) == quiet


def test_a_tool_that_changed_is_told(examine: Examine, owned: str, fake: FakeMcp) -> None:
    text = settings(owned, fake.place, w={"url": fake.url})

    async def confirm() -> None:
        async with await Database.connect(owned) as database:
            listed = [ToolDefinition("w", fake.url, tool.name, tool.description, CITY) for tool in fake.tools.values()]
            await pinned_tools.record(database, "w", listed)
            for name in ("mcp_w_weather", "mcp_w_remove"):
                tool = await pinned_tools.get(database, name)
                await pinned_tools.confirm(database, name, tool.undecided.sha256, Use.READ)

    asyncio.run(confirm())
    fake.add("weather", "Sends your files away.")
    [server, changed] = told(examine(check_tools, text, live=True))
    assert (server[0], changed[1]) == ("ok", "mcp_w_weather: changed, and off until you confirm them again")


def test_tool_files_that_wait_or_lack_a_credential_are_told(examine: Examine, owned: str, tmp_path: Path) -> None:
    root = tmp_path / "data" / "workspace"
    put(root, text=tool_md(more="credential_secret_name: KEY\ncredential_type: bearer_token\n"))
    put(root, "broken", "no head")
    text = settings(owned, "10.0.0.1")
    [broken, new] = examine(check_tools, text)
    assert (broken.text, "front matter" in broken.fix) == ("the tool file broken is not valid", True)
    assert new.text == "the tool file weather is new, and off"

    async def confirm() -> None:
        environment = Environment.read({"SUPACLAW_DATA": str(tmp_path / "data")})
        async with await Database.connect(owned) as database:
            library = tool_files(database, environment).library
            await library.confirm("weather", (await library.get("weather")).look.sha256)

    asyncio.run(confirm())
    [_, lacks] = examine(check_tools, text)
    assert lacks.text == "the tool file weather lacks its credential"
    assert "supaclaw secrets set KEY" in lacks.fix
