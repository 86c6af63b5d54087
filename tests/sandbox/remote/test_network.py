"""Network, scripts and MCP servers in the service of compose: as on bare metal, apart from what runs beside them."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.agent.mcp.servers import LocalServers
from gateway.config.model import McpServer
from gateway.domain.principals import Label
from gateway.net.addresses import Rules
from gateway.net.errors import NetError
from gateway.net.mcp.connections import Connections
from gateway.sandbox.command import Limits
from gateway.sandbox.remote.client import RemoteWorkshop
from tests.fakes.eventually import eventually
from tests.net.mcp.test_connection import SERVER
from tests.net.servers import page, serving
from tests.sandbox.remote.services import needs_containers, service
from tests.sandbox.remote.test_service import WITHOUT, anyone
from tests.security.test_network import Desk

pytestmark = needs_containers

KERNELS = pytest.mark.parametrize("kernel", [WITHOUT, f"landlock=1, {WITHOUT}", ""], ids=["own", "old", "namespaces"])
SHARED = pytest.mark.parametrize("kernel", [WITHOUT, f"landlock=1, {WITHOUT}"], ids=["own", "old"])
LOOK = "curl -sS -m 10 -o - -w '%{{http_code}}' {} 2>&1"


@asynccontextmanager
async def desk_with(base: Path, kernel: str) -> AsyncIterator[Desk]:
    for name in ("sessions", "memory", "uploads"):
        (base / "workspace" / name).mkdir(parents=True)
    async with service(base, kernel) as path:
        jail = RemoteWorkshop(base / "scratch", path=path, admits=anyone)
        yield Desk(base / "workspace", jail)
        await jail.close()


@pytest.fixture
async def desk(tmp_path: Path, kernel: str) -> AsyncIterator[Desk]:
    async with desk_with(tmp_path, kernel) as made:
        yield made


@KERNELS
async def test_the_approved_host_answers_and_no_other(desk: Desk) -> None:
    async with serving(page(b"in")) as one, serving(page(b"no")) as other:
        places = [f"127.0.0.1:{each.port}" for each in (one, other)]
        desk.private += places
        looks = "; ".join(LOOK.format(f"http://{place}/") + "; echo" for place in places)
        outcome = await desk.outcome(looks, places[0])
    assert json.loads(outcome.text)["output"].splitlines() == [
        "in200",
        f"Only {places[0]} may be reached by this command.",
        "403",
    ]
    assert (len(one.asked), other.asked, outcome.label) == (1, [], Label.UNTRUSTED)


@SHARED
async def test_commands_beside_each_other_share_nothing_but_the_network(desk: Desk, kernel: str) -> None:
    async with serving(page(b"in")) as server:
        place = f"127.0.0.1:{server.port}"
        desk.private.append(place)
        (desk.root / "listen.py").write_text("import socket\nsocket.create_server(('127.0.0.1', 0))\n")
        assert "Permission denied" in (await desk.run("python3 -I listen.py 2>&1", place))["output"]
        first = asyncio.create_task(
            desk.run("echo $http_proxy > proxy; while [ -e proxy ]; do sleep 0.05; done", place)
        )
        await eventually(lambda: (desk.root / "proxy").exists() and bool((desk.root / "proxy").read_text()))
        theirs = (desk.root / "proxy").read_text().strip()
        bare = f"http://{theirs.partition('@')[2]}"
        for proxy, old in ((theirs, "in200"), (bare, "407")):
            answer = (await desk.run(f"http_proxy={proxy} {LOOK.format(f'http://{place}/')}", place))["output"]
            # an old kernel does not bound ports: a proxy that is known answers, and its address tells nothing
            assert answer.endswith(old if "landlock=1" in kernel else "000")
        seen = await desk.run(
            "cat /proc/net/tcp; cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -v TERM; true", place
        )
        assert theirs.partition("@")[2].partition(":")[0] not in seen["output"]
        (desk.root / "proxy").unlink()
        await first


@SHARED
async def test_without_hosts_there_are_no_sockets(desk: Desk) -> None:
    (desk.root / "open.py").write_text("import socket\nsocket.socket()\n")
    assert "Permission denied" in (await desk.run("python3 -I open.py 2>&1"))["output"]


@KERNELS
async def test_a_script_runs_on_its_own_files_and_leaves_none(desk: Desk) -> None:
    script = b"""\
import os, sys
print(sys.stdin.read(), open("seen").read())
for path in (__file__, os.path.dirname(__file__) + "/new"):
    try:
        open(path, "w")
        print("wrote", path)
    except OSError:
        pass
"""
    (desk.root / "seen").write_text("workspace")
    async with desk.commands.permit(Label.OWNER) as permit:
        running = await desk.commands.start_script(
            ("python3", "-I", "./run.py"), {"run.py": script, "more/data": b"x" * 300_000}, b"given", permit, Limits()
        )
        output = b"".join([piece async for piece in running.pieces()])
        assert (await running.report()).code == 0
    assert output == b"given workspace\n"
    assert not list((desk.root.parent / "scratch").iterdir())


@dataclass
class Servers:
    local: LocalServers
    connections: Connections
    place: Path

    async def do(self, what: str, **more: object) -> str:
        settings = {"command": "python3", "args": ["-I", str(self.place)], "reads": [str(self.place.parent)], **more}
        endpoint = self.local.endpoint("w", McpServer.model_validate(settings))
        found, _ = await self.connections.get("ada", endpoint)
        return (await found.call("do", {"what": what})).text


@pytest.fixture
async def servers(desk: Desk) -> AsyncIterator[Servers]:
    """What both containers have mounted: here, a folder of the repository."""
    connections = Connections(Rules)
    rules = lambda: Rules.of(desk.private)  # noqa: E731
    local = LocalServers(desk.commands.workshop, desk.root.parent / "data", rules)
    yield Servers(local, connections, SERVER)
    await connections.close()


@KERNELS
async def test_an_mcp_server_lives_as_long_as_its_connection_without_the_workspace(
    desk: Desk, servers: Servers
) -> None:
    (desk.root / "secret.txt").write_text("hush")
    assert await servers.do("hello") == "echo hello"
    for path in ("/workspace/secret.txt", str(desk.root / "secret.txt")):
        assert "hush" not in await servers.do(f"read {path}")
    await servers.connections.close()


@KERNELS
async def test_what_the_service_has_not_mounted_is_named(desk: Desk, servers: Servers, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    shutil.copy(SERVER, other)
    with pytest.raises(NetError, match="elsewhere is not in the service of commands; mount it there"):
        await servers.do("hello", reads=[str(other)])


@pytest.mark.parametrize("kernel", [f"landlock=0, {WITHOUT}"])
async def test_a_kernel_without_landlock_has_no_network_and_no_servers(desk: Desk, servers: Servers) -> None:
    answer = json.loads((await desk.outcome("true", "example.org")).text)
    assert answer["error"] == "no_network"
    assert "has no Landlock" in answer["message"]
    with pytest.raises(NetError, match="has no Landlock"):
        await servers.do("hello")
    assert (await desk.run("echo works"))["output"] == "works\n"
