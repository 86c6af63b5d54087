"""MCP servers that are processes: in the real jail, gone with their connection, and every way in which one is bad."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mcp.client import session

from gateway.agent.mcp.calls import McpCalls
from gateway.agent.mcp.elicitation import Consult
from gateway.agent.mcp.pinned_tools import PinnedTool, ToolState, Use
from gateway.agent.mcp.servers import LocalServers
from gateway.agent.tool_sources import AnyArguments
from gateway.config.model import McpServer
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.work.plans import pin_of
from gateway.net.addresses import Rules
from gateway.net.errors import NetError
from gateway.net.mcp import connection
from gateway.net.mcp.connections import Connections
from gateway.net.mcp.server import McpResult
from gateway.sandbox.command import Tier
from gateway.sandbox.workshop import Workshop
from tests.fakes.caller import CALLER
from tests.fakes.eventually import eventually
from tests.net.servers import page, serving
from tests.sandbox.tiers import confines

pytestmark = pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")
SERVER = Path(__file__).with_name("stdio_server.py")


@dataclass
class Local:
    servers: LocalServers
    connections: Connections
    place: Path

    def config(self, **more: Any) -> McpServer:
        settings = {"command": "python3", "args": ["-I", str(self.place)], "reads": [str(self.place.parent)], **more}
        return McpServer.model_validate(settings)

    async def get(self, whose: str = "ada", **more: Any) -> "connection.Connection":
        found, _ = await self.connections.get(whose, self.servers.endpoint("w", self.config(**more)))
        return found

    async def do(self, what: str, **more: Any) -> str:
        return (await (await self.get(**more)).call("do", {"what": what})).text


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Local]:
    place = tmp_path / "servers/server.py"
    place.parent.mkdir()
    shutil.copy(SERVER, place)
    (tmp_path / "data/keys").mkdir(parents=True)
    (tmp_path / "data/keys/master").write_text("hush")
    workshop, connections = Workshop(tmp_path / "data/scratch"), Connections(Rules)
    yield Local(LocalServers(workshop, tmp_path / "data", Rules), connections, place)
    await connections.close()
    await workshop.close()


async def test_it_starts_when_it_is_needed_stays_and_goes_with_its_connection(local: Local) -> None:
    first = await local.get()
    again = await local.get()
    assert again is first
    assert [each.tool_name for each in first.tools.values()] == ["mcp_w_do"]
    assert [each.host for each in first.tools.values()] == ["w"]
    assert await local.do("hello") == "echo hello"
    seconds = str(100_000 + os.getpid())
    await local.do(f"leave {seconds}")
    await eventually(lambda: asleep(seconds) == 1)  # a program shows its arguments a moment after it was started
    await local.connections.close()
    await eventually(lambda: asleep(seconds) == 0)
    assert not list(local.servers.workshop.scratch.iterdir())


def asleep(seconds: str) -> int:
    """Children of servers, as the machine sees them."""
    found = 0
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += each.read_bytes() == f"sleep\0{seconds}\0".encode()
    return found


async def test_one_that_dies_tells_why_in_a_line_and_is_started_again(local: Local) -> None:
    with pytest.raises(NetError) as error:
        await local.do("die")
    assert str(error.value) == "w ended with code 1: I am tired of this"
    assert error.value.foreign
    assert await local.do("hello") == "echo hello"


async def test_it_sees_nothing_but_its_files_and_has_no_network(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPACLAW_MASTER_KEY", "hush")
    async with serving(page(b"hello")) as server:
        settings: dict[str, Any] = {"env": {"PORT": str(server.port), "TOKEN": "given"}}
        found = json.loads(await local.do("env", **settings))
        assert (found["TOKEN"], "SUPACLAW_MASTER_KEY" in found) == ("given", False)
        assert await local.do("connect", **settings) == "PermissionError"
    keys = local.servers.data / "keys"
    assert await local.do(f"list {keys}", **settings) == "FileNotFoundError"
    assert await local.do(f"read {keys}/master", **settings) == "FileNotFoundError"
    assert (await local.do(f"read {local.place}", **settings)).startswith('"""An MCP server')
    assert await local.do(f"write {local.place}", **settings) == "OSError"
    assert await local.do("write note.txt", **settings) == "1"
    assert await local.do("list .", **settings) == "['note.txt']"


async def test_it_reaches_the_hosts_of_its_entry_alone(local: Local) -> None:
    async with serving(page(b"in")) as server, serving(page(b"inside")) as other:
        place = f"127.0.0.1:{server.port}"
        local.servers = replace(local.servers, rules=lambda: Rules.of(["127.0.0.1"]))
        assert await local.do(f"curl http://{place}/", hosts=[place]) == "in"
        assert "may be reached" in await local.do(f"curl http://127.0.0.1:{other.port}/", hosts=[place])
        assert await local.do(f"curl http://{place}/") == ""
    assert (len(server.asked), other.asked) == (1, [])
    reaching, alone = await local.get(hosts=["b.example:1"]), await local.get()
    assert reaching.tools["do"].url.startswith("stdio-net://w/b.example:1/")
    assert reaching.tools["do"].sha256 != alone.tools["do"].sha256
    pinned = PinnedTool(ToolState.ON, reaching.tools["do"], Use.READ)

    async def not_called(*_: object) -> Any:
        raise AssertionError("nothing is asked of the server")

    calls = McpCalls(pinned, not_called, not_called, Consult(), not_called, 60)
    assert await calls.kind_of_reading(AnyArguments(what="x"), CALLER) is ToolClass.SEND
    assert (await calls.change(AnyArguments(what="x"), CALLER)).preview.startswith(
        "Call a tool of w, which reaches b.example:1."
    )
    assert len({pin_of(replace(calls, pinned=replace(pinned, use=use)).tool) for use in Use}) == len(Use)


async def test_one_for_any_host_reaches_what_the_rules_let_through(local: Local) -> None:
    async with serving(page(b"in")) as server, serving(page(b"inside")) as other:
        local.servers = replace(local.servers, rules=lambda: Rules.of([f"127.0.0.1:{server.port}"]))
        assert await local.do(f"curl http://127.0.0.1:{server.port}/", hosts=["*"]) == "in"
        refused = await local.do(f"curl http://127.0.0.1:{other.port}/", hosts=["*"])
        assert "only its owner can allow it" in refused
        assert "always blocked" in await local.do("curl http://169.254.169.254/", hosts=["*"])
    assert other.asked == []
    assert (await local.get(hosts=["*"])).tools["do"].url.startswith("stdio-net://w/*/")
    for mixed in (["*", "a.example"], ["*.example"]):
        with pytest.raises(NetError, match=r"isn't a host|can't be used"):
            local.servers.endpoint("w", local.config(hosts=mixed))


async def test_one_that_ignores_the_probe_is_asked_in_the_older_way_and_never_probed_again(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(session, "DISCOVER_TIMEOUT_SECONDS", 3_600.0)
    older = "initialize notifications/initialized tools/list tools/call"
    assert await local.do("asked", env={"SILENT": "1"}) == f"server/discover {older}"

    for whose in ("ada", "bob"):
        await local.connections.drop(whose, "w")
        assert await (await local.get(whose, env={"SILENT": "1"})).call("do", {"what": "asked"}) == McpResult(older)

    await local.connections.drop("ada", "w")
    assert (
        await local.do("asked", env={"SILENT": "1"}, args=["-I", "-u", str(local.place)]) == f"server/discover {older}"
    )


async def test_one_that_fails_after_the_handshake_is_probed_again(local: Local) -> None:
    await local.get()
    text = local.place.read_text()
    local.place.write_text("raise SystemExit(3)")
    await local.connections.drop("ada", "w")
    with pytest.raises(NetError):
        await local.get()
    local.place.write_text(text)

    assert (await local.do("asked")).startswith("server/discover")


async def test_people_have_servers_of_their_own_and_a_change_starts_another(local: Local) -> None:
    ada, bob = await local.get("ada"), await local.get("bob")
    await bob.call("do", {"what": "write bobs.txt"})
    assert (await ada.call("do", {"what": "list ."})).text == "[]"
    changed = await local.get("ada", env={"X": "1"})
    assert (changed is ada, ada.alive, changed.alive) == (False, False, True)
    urls = {
        each.tools["do"].url for each in (ada, changed, await local.get("ada", args=["-I", "-u", str(local.place)]))
    }
    assert len(urls) == 3, "what was confirmed covers how it is started"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"command": "no-such-program"}, "w did not start: 'no-such-program': no such program here."),
        ({"args": ["-c", "import sys; sys.exit(3)"]}, "w ended with code 3."),
        ({"args": ["-c", "print('<html>' * 9)"]}, "w ended with code 0."),
    ],
)
async def test_what_is_no_server_costs_one_line(local: Local, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(NetError) as error:
        await local.get(**settings)
    assert str(error.value) == problem


async def test_floods_and_garbage_end_the_connection(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_ANSWER", 2 * 2**20)
    with pytest.raises(NetError, match="more than 2 MB at once"):
        await local.do("flood")
    with pytest.raises(NetError, match="did not answer as an MCP server does"):
        await local.do("garbage")
    assert await local.do("hello") == "echo hello"


async def test_one_that_never_answers_does_not_hold_up_the_end(local: Local) -> None:
    await local.get()
    call = asyncio.create_task(local.do("hang"))
    await asyncio.sleep(0.2)
    call.cancel()
    await local.connections.close()
    await eventually(lambda: not list(local.servers.workshop.scratch.iterdir()))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"env": {"KEY": "${secret:KEY}"}}, r"env\.KEY: a server on this machine could show"),
        ({"reads": ["{data}"]}, "the gateway's own data is in"),
        ({"reads": ["/"]}, "the gateway's own data is in"),
        ({"reads": ["{data}/keys/master"]}, "the gateway's own data is in"),
        ({"reads": ["relative"]}, "there is no relative"),
        ({"reads": ["/nowhere"]}, "there is no /nowhere"),
    ],
)
def test_what_would_show_secrets_is_refused(local: Local, settings: dict[str, Any], problem: str) -> None:
    filled = {
        key: [each.replace("{data}", str(local.servers.data)) for each in value] if isinstance(value, list) else value
        for key, value in settings.items()
    }
    with pytest.raises(NetError, match=problem):
        local.servers.endpoint("w", local.config(**filled))


async def test_without_a_jail_none_is_started(local: Local) -> None:
    local.servers.workshop.without = frozenset(Tier)
    with pytest.raises(NetError, match="can't be confined here"):
        await local.get()
