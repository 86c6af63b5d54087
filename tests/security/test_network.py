"""The network of a jailed command: the approved hosts and nothing else, in this call and in no other."""

import asyncio
import json
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.policy import Act, Policy
from gateway.agent.toolbox import ToolOutcome
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.tools import Caller
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.net import addresses, proxy
from gateway.net.addresses import Rules
from gateway.net.errors import NetError
from gateway.sandbox.command import Tier
from gateway.sandbox.workshop import Workshop
from gateway.tools import Services
from gateway.tools import exec as exec_tool
from gateway.workspace.files.tree import Workspace
from tests.fakes.caller import CALLER
from tests.fakes.toolboxes import toolbox_of
from tests.net.servers import Asked, Write, head, page, serving
from tests.sandbox.tiers import confines
from tests.tools.desk import Shelf, commands_on

pytestmark = pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")


@dataclass
class Desk:
    root: Path
    workshop: Workshop
    private: list[str] = field(default_factory=list)
    asked: list[Act] = field(default_factory=list)

    def __post_init__(self) -> None:
        workspace = Workspace(self.root, Shelf())
        rules = lambda: Rules.of(self.private)  # noqa: E731
        self.commands = commands_on(self.workshop, workspace, rules)
        tools = exec_tool.tools(Services(workspace, commands=self.commands))
        self.toolbox = toolbox_of(tools, self.spill, Policy(Label.OWNER, ask=self.ask))
        self.approved = toolbox_of([replace(each, kind=None) for each in tools], self.spill)
        """As it is called after a yes."""

    async def spill(self, name: str, _text: str, _label: Label) -> str:
        return name

    async def ask(self, act: Act, _caller: Caller) -> JsonObject:
        self.asked.append(act)
        return {"waiting_for_approval": "A1"}

    async def outcome(self, command: str, *hosts: str, seconds: int = 60) -> ToolOutcome:
        call = ToolCall("1", "exec", json.dumps({"command": command, "hosts": hosts, "seconds": seconds}))
        return await self.approved.run(call, CALLER)

    async def run(self, command: str, *hosts: str, seconds: int = 60) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = json.loads((await self.outcome(command, *hosts, seconds=seconds)).text)
        return answer

    async def python(self, program: str, *hosts: str) -> str:
        (self.root / "attack.py").write_text(program)
        return str((await self.run("python3 -I attack.py 2>&1", *hosts))["output"])


@dataclass(slots=True)
class WithoutNamespaces(Workshop):
    async def tier(self) -> Tier:
        return Tier.LANDLOCK


JAILS = {"namespaces": Workshop, "supervised": WithoutNamespaces, "old": partial(WithoutNamespaces, landlock=3)}
"""The last has no Landlock that bounds connections or signals."""


@pytest.fixture(params=JAILS.values(), ids=JAILS.keys())
async def desk(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    root = tmp_path / "workspace"
    for name in ("uploads", "work"):  # without namespaces nothing can be made beside them
        (root / name).mkdir(parents=True)
    workshop: Workshop = request.param(tmp_path / "scratch")
    if request.param is Workshop and await workshop.tier() is not Tier.NAMESPACES:
        pytest.skip("there are no namespaces for users here")
    yield Desk(root, workshop)
    await workshop.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What names mean, lookup after lookup; the last stays."""
    known: dict[str, list[str]] = {}

    async def look_up(host: str, _port: int) -> list[str]:
        if host not in known:
            return [host]
        return [known[host].pop(0) if len(known[host]) > 1 else known[host][0]]

    monkeypatch.setattr(addresses, "look_up", look_up)
    return known


CURL = "curl -sS -m 10 -o - -w '%{{http_code}}' {} 2>&1"


async def test_a_clone_from_a_server_of_this_machine_needs_a_yes_that_names_it(desk: Desk, tmp_path: Path) -> None:
    served = git_repository(tmp_path / "served")
    async with serving(files_of(served)) as server:
        place = f"127.0.0.1:{server.port}"
        clone = f"cd work; git clone -q http://{place}/project.git project 2>&1; cat project/README"
        without = await desk.run(clone)
        assert "hello" not in without["output"]
        call = ToolCall("1", "exec", json.dumps({"command": clone, "hosts": [place]}))
        asked = json.loads((await desk.toolbox.run(call, CALLER)).text)
        assert asked == {"waiting_for_approval": "A1"}
        assert server.asked == []
        assert desk.asked[0].change.preview.splitlines()[0] == (
            f"Run this command, which can send anything in the workspace to {place}, and to no other host:"
        )
        assert place in (await desk.run(clone, place))["output"], "a private place has to be allowed as well"
        desk.private.append(place)
        outcome = await desk.outcome(clone, place)
        assert (json.loads(outcome.text)["output"], outcome.label) == ("hello\n", Label.UNTRUSTED)


def git_repository(folder: Path) -> Path:
    folder.mkdir()
    for line in (
        "git init -q -b main work",
        "echo hello > work/README",
        "git -C work -c user.name=A -c user.email=a@example.org add README",
        "git -C work -c user.name=A -c user.email=a@example.org commit -q -m first",
        "git clone -q --bare work project.git",
        "git -C project.git update-server-info",
    ):
        subprocess.run(line, shell=True, check=True, cwd=folder)
    return folder


def files_of(folder: Path) -> Callable[[Asked, Write], Any]:
    async def respond(asked: Asked, write: Write) -> None:
        path = folder / asked.path.partition("?")[0].strip("/")
        if path.is_file():
            await page(path.read_bytes(), "application/octet-stream")(asked, write)
        else:
            await page(b"no", "text/plain", "404 Not Found")(asked, write)

    return respond


async def test_other_hosts_ports_and_spellings_are_refused(desk: Desk, names: dict[str, list[str]]) -> None:
    names |= {"ours.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
    async with serving(page(b"in")) as server:
        port = server.port
        desk.private += [f"ours.example:{port}", f"other.example:{port}", f"127.0.0.1:{port}"]
        urls = [
            f"http://ours.example:{port}/",
            f"http://OURS.example.:{port}/",
            f"http://other.example:{port}/",
            f"http://127.0.0.1:{port}/",
            f"http://[::ffff:127.0.0.1]:{port}/",
            f"http://2130706433:{port}/",
            f"http://sub.ours.example:{port}/",
            "http://ours.example:3128/",
            "http://ours.example:22/",
            f"http://ours.example@127.0.0.1:{port}/",
        ]
        answer = await desk.run(
            "; ".join(f"{CURL.format(f'{url!r}')} | tail -c 5; echo" for url in urls), f"ours.example:{port}"
        )
    assert re.findall(r"\d\d\d$", answer["output"], re.MULTILINE) == ["200", "200", *["403"] * 8]
    assert len(server.asked) == 2


async def test_a_tunnel_goes_to_approved_hosts_only(desk: Desk) -> None:
    async with serving(page(b"in")) as server:
        place = f"127.0.0.1:{server.port}"
        desk.private += ["127.0.0.1"]
        tunnel = f"curl -sS -m 10 -p http://{place}/ 2>&1"
        assert (await desk.run(tunnel, place))["output"] == "in"
        assert "403" in (await desk.run(tunnel, "127.0.0.1:1"))["output"]


async def test_a_name_is_checked_when_it_is_connected_however_often_it_changes(
    desk: Desk, names: dict[str, list[str]]
) -> None:
    names["turns.example"] = ["169.254.169.254", "127.0.0.1", "10.0.0.1", "::1"]
    async with serving(page(b"in")) as server:
        place = f"turns.example:{server.port}"
        desk.private += ["127.0.0.1:1"]
        look = CURL.format(f"http://{place}/")
        answer = await desk.run("; ".join([look] * 4), place)
    assert answer["output"].count("403") == 4
    assert server.asked == []


async def test_a_redirect_leads_nowhere_else(desk: Desk) -> None:
    async def redirect(_asked: Asked, write: Write) -> None:
        await write(head("text/plain", "302 Found", f"Location: http://127.0.0.1:{inside.port}/", length=0))

    async with serving(page(b"inside")) as inside, serving(redirect) as server:
        place = f"127.0.0.1:{server.port}"
        desk.private += [place, f"127.0.0.1:{inside.port}"]
        answer = await desk.run(f"curl -sSL -m 10 http://{place}/ 2>&1", place)
    assert "may be reached by this command" in answer["output"]
    assert inside.asked == []


async def test_a_credential_is_of_one_call_and_its_proxy_ends_with_it(desk: Desk) -> None:
    async with serving(page(b"in")) as server:
        place = f"127.0.0.1:{server.port}"
        desk.private.append(place)
        first = (await desk.run("echo $http_proxy", place))["output"].strip()
        look = CURL.format(f"http://{place}/")
        shared = isinstance(desk.workshop, WithoutNamespaces)  # then each command has another address
        assert (await desk.run(f"http_proxy={first} {look}", place))["output"].endswith("000" if shared else "407")
        assert "407" in (await desk.run(f"http_proxy=http://${{http_proxy##*@}} {look}", place))["output"]
        assert (await desk.run(look))["output"].endswith("000"), "a call without hosts has no proxy"
        assert (await desk.run(f"http_proxy={first} {look}"))["output"].endswith("000")
    assert server.asked == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", 3128)) != 0, "nobody else can reach it"


async def test_the_proxys_secret_and_the_commands_own_headers_do_not_reach_the_host(desk: Desk) -> None:
    async with serving(page(b"in")) as server:
        place = f"127.0.0.1:{server.port}"
        desk.private.append(place)
        await desk.run(f"curl -sS -m 10 -H 'Host: elsewhere.example' -d body http://{place}/x?y", place)
    (asked,) = server.asked
    assert (asked.path, asked.headers["host"]) == ("/x?y", place)
    assert not [name for name in asked.headers if name.startswith("proxy-")]


async def test_commands_side_by_side_do_not_reach_each_others_proxies(desk: Desk) -> None:
    async with serving(page(b"one")) as one, serving(page(b"two")) as two:
        places = [f"127.0.0.1:{each.port}" for each in (one, two)]
        desk.private += places
        looks = "; ".join(CURL.format(f"http://{place}/") + "; echo" for place in places)
        answers = await asyncio.gather(*(desk.run(f"sleep 0.3; {looks}", place) for place in places))
    found = [re.findall(r"\d\d\d$", each["output"], re.MULTILINE) for each in answers]
    assert found == [["200", "403"], ["403", "200"]]


PROBE = """\
import socket
KINDS = {
    "udp": (socket.AF_INET, socket.SOCK_DGRAM, 0), "udp6": (socket.AF_INET6, socket.SOCK_DGRAM, 0),
    "raw": (socket.AF_INET, socket.SOCK_RAW, 1), "unix": (socket.AF_UNIX, socket.SOCK_STREAM, 0),
    "netlink": (socket.AF_NETLINK, socket.SOCK_RAW, 0), "vsock": (40, socket.SOCK_STREAM, 0),
    "mptcp": (socket.AF_INET, socket.SOCK_STREAM, 262), "sctp": (socket.AF_INET, socket.SOCK_STREAM, 132),
    "packet": (17, socket.SOCK_RAW, 0), "flags": (socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, 0),
}
for name, kind in KINDS.items():
    try:
        socket.socket(*kind)
        print(name, "opened")
    except PermissionError:
        pass
for address in (%s):
    try:
        socket.create_connection(address, 2)
        print(address, "connected")
    except OSError:
        pass
with socket.socket() as big:
    try:
        big.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        print("large buffers")
    except PermissionError:
        pass
print("end")
"""


async def test_there_is_no_way_around_the_proxy(desk: Desk) -> None:
    async with serving(page(b"in")) as server:
        desk.private.append("127.0.0.1")
        own = socket.gethostbyname(socket.gethostname())
        addresses = [("127.0.0.1", server.port), (own, server.port), ("1.1.1.1", 443), ("169.254.169.254", 80)]
        output = await desk.python(PROBE % ", ".join(map(str, addresses)), f"127.0.0.1:{server.port}")
    assert output == "end\n"
    assert server.asked == []


async def test_a_flood_of_connections_and_half_requests_ends_with_the_command(desk: Desk) -> None:
    program = """\
import os, socket
host, port = os.environ["http_proxy"].rpartition("@")[2].split(":")
held = []
for number in range(300):
    try:
        one = socket.create_connection((host, port), 5)
        one.sendall(b"GET http://127.0.0.1" + b"x" * number)
        held.append(one)
    except OSError:
        pass
big = socket.create_connection((host, port), 5)
try:
    for _ in range(64):
        big.sendall(b"x" * 65536)
except OSError:
    pass
print("end")
"""
    assert await desk.python(program, "127.0.0.1:1") == "end\n"
    assert [task for task in asyncio.all_tasks() if "Proxy" in repr(task.get_coro())] == []


async def test_a_stopped_command_takes_its_connections_along(desk: Desk) -> None:
    reached, gone = asyncio.Event(), asyncio.Event()

    async def hang(_asked: Asked, write: Write) -> None:
        await write(head(length=10**9))
        reached.set()
        try:
            while True:
                await write(b"x" * 1000)
                await asyncio.sleep(0.02)
        finally:
            gone.set()

    async with serving(hang) as server:
        place = f"127.0.0.1:{server.port}"
        desk.private.append(place)
        work = asyncio.create_task(desk.run(f"curl -s http://{place}/ > work/big", place))
        async with asyncio.timeout(30):
            await reached.wait()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await gone.wait()


async def test_hosts_that_are_none_are_refused_before_anybody_is_asked(desk: Desk) -> None:
    for bad in ("http://example.org", "example.org/path", "user@example.org", "*.example.org", "exa mple.org", "a:0"):
        call = ToolCall("1", "exec", json.dumps({"command": "true", "hosts": [bad]}))
        answer = json.loads((await desk.toolbox.run(call, CALLER)).text)
        assert answer["error"] in {"invalid_url", "invalid_host"}, bad
    assert desk.asked == []
    with pytest.raises(NetError):
        proxy.Destination.of("")


SUPERVISED = """\
import errno, os, socket, threading, time
proxy = os.environ["http_proxy"].rpartition("@")[2].partition(":")
right, wrong = (proxy[0], int(proxy[2])), ("127.0.0.1", %d)
def told(name, act):
    try:
        print(name, "done", act())
    except OSError as error:
        print(name, errno.errorcode[error.errno])
told("right", lambda: socket.create_connection(right, 5).close())
told("wrong", lambda: socket.create_connection(wrong, 5))
told("listen", lambda: socket.create_server(("127.0.0.1", 0)))
told("at once", lambda: socket.socket().sendto(b"x", 0x20000000, wrong))
told("with a message", lambda: socket.socket().sendmsg([b"x"], [], 0x20000000, wrong))
told("a pipe", lambda: socket.socketpair()[0].connect("x"))
with socket.socket() as one:
    one.setblocking(False)
    print("later", one.connect_ex(right) in (0, errno.EINPROGRESS))
with socket.socket() as one:
    one.connect(right)
    told("buffers", lambda: one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 1 << 18)
    told("timeout", lambda: one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16) == bytes(16))
"""
RACE = """\
import ctypes, os, socket, struct, threading, time
libc, ends = ctypes.CDLL(None), time.monotonic() + 2
host, _, port = os.environ["http_proxy"].rpartition("@")[2].partition(":")
a, b = (struct.pack("=H", 2) + struct.pack("!H", int(p)) + socket.inet_aton(h) + bytes(8)
        for h, p in ((host, port), ("127.0.0.1", %d)))
address = ctypes.create_string_buffer(a, 16)
def swap():
    while time.monotonic() < ends:
        ctypes.memmove(address, b, 16); ctypes.memmove(address, a, 16)
threading.Thread(target=swap).start()
reached = 0
while time.monotonic() < ends:
    with socket.socket() as one:
        if libc.connect(one.fileno(), address, 16) == 0:
            reached += one.getpeername()[1] != int(port)
print("reached", reached)
"""


async def test_without_namespaces_it_is_connected_to_its_proxy_and_to_nothing_else(desk: Desk) -> None:
    if not isinstance(desk.workshop, WithoutNamespaces):
        pytest.skip("a network of its own has nothing else")
    async with serving(page(b"in")) as server:
        place = f"127.0.0.1:{server.port}"
        desk.private.append(place)
        assert (await desk.python(SUPERVISED % server.port, place)).splitlines() == [
            "right done None", "wrong EACCES", "listen EACCES", "at once EPERM", "with a message EPERM",
            "a pipe EACCES", "later True", "buffers done True", "timeout done True",
        ]  # fmt: skip
        assert await desk.python(RACE % server.port, place) == "reached 0\n"
    assert server.asked == []
