"""Commands in the service of compose: what they are promised on bare metal holds there, too."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.principals import Label
from gateway.sandbox.command import Command, Tier
from gateway.sandbox.remote.client import RemoteWorkshop
from gateway.sandbox.remote.protocol import Peer, WorkshopRequest, pack_request, parse_reply
from gateway.sandbox.remote.service import ContainerWorkshop, Service
from gateway.sandbox.workshop import NoJail
from tests.fakes.eventually import eventually
from tests.sandbox.remote.services import needs_containers, service
from tests.tools.desk import Desk

pytestmark = needs_containers

WITHOUT = "without={Tier.NAMESPACES}"
KERNELS = pytest.mark.parametrize("kernel", [WITHOUT, f"landlock=1, {WITHOUT}", f"landlock=0, {WITHOUT}"])
"""A new one, an old one, and one without Landlock."""

CONNECT = """
import socket
from contextlib import suppress
for family, kind, to in ((1, 5, {path!r}), (2, 1, ("127.0.0.1", 22)), (2, 2, ("127.0.0.1", 53))):
    try:
        socket.socket(family, kind).connect(to)
        print("GOT")
    except OSError as error:
        print(error.errno)
"""


def anyone(peer: Peer) -> bool:
    """From here the numbers of a container's processes can be seen, as from the machine."""
    return peer.user == os.getuid()


@pytest.fixture
def kernel() -> str:
    return WITHOUT


@pytest.fixture
async def desk(tmp_path: Path, kernel: str) -> AsyncIterator[Desk]:
    for name in ("sessions", "memory", "notes"):
        (tmp_path / "workspace" / name).mkdir(parents=True)
    (tmp_path / "workspace/sessions/today.md").write_text("said")
    async with service(tmp_path, kernel) as path:
        jail = RemoteWorkshop(tmp_path / "scratch", path=path, admits=anyone)
        yield Desk(tmp_path, jail)
        await jail.close()


@KERNELS
async def test_a_command_answers_as_in_any_jail(desk: Desk) -> None:
    (desk.root / "notes/old.md").write_text("old")
    answer = await desk.run(
        "echo hello; echo oops >&2; echo x >> notes/old.md; echo echo ran > run.sh; chmod +x run.sh; ./run.sh; exit 3"
    )
    assert answer == {
        "exit_code": 3,
        "output": "hello\noops\nran\n",
        "files": {"new": ["run.sh"], "changed": ["notes/old.md"]},
    }
    assert (desk.root / "run.sh").stat().st_uid == os.getuid()
    outcome = await desk.outcome("cat run.sh")
    assert outcome.label is Label.UNTRUSTED  # without a root of its own, it sees others' files


@KERNELS
async def test_what_is_the_gateways_cannot_be_changed_or_reached(desk: Desk) -> None:
    answer = await desk.run(
        "cd sessions; echo evil > new.md; rm -f today.md; echo evil >> today.md; chmod 777 today.md; cat today.md; true"
    )
    assert answer["output"].endswith("said")
    assert os.listdir(desk.root / "sessions") == ["today.md"]
    jail = desk.workshop
    assert isinstance(jail, RemoteWorkshop)
    (desk.root / "connect.py").write_text(CONNECT.format(path=str(jail.path)))
    answer = await desk.run("python3 connect.py")
    assert answer["output"] == "13\n13\n13\n"


async def test_a_time_that_is_over_ends_all_of_it(desk: Desk) -> None:
    mark = f"9{os.getpid() % 10000:04}"
    hiding = f"(setsid sh -c 'setsid sleep {mark} & sleep {mark}' &); (nohup sleep {mark} &); sleep {mark}"
    answer = await desk.run(hiding, seconds=1)
    assert "took longer" in answer["ended"]
    assert alive(mark) == 0


@pytest.mark.parametrize("kernel", [f"landlock=0, {WITHOUT}"])
async def test_an_old_kernel_ends_it_just_as_well(desk: Desk) -> None:
    mark = f"8{os.getpid() % 10000:04}"
    comets = "for i in 1 2 3 4; do (while :; do (sleep 0.01 &) ; done) & done"
    answer = await desk.run(f"{comets}; (setsid nohup sleep {mark} &); sleep {mark}", seconds=1)
    assert "ended" in answer
    assert alive(mark) == 0


@KERNELS
async def test_a_command_there_has_a_terminal_too(desk: Desk) -> None:
    line = "stty size; read -r word < /dev/tty; echo got:$word; cat"
    process = (await desk.spawn("start", command=line, pty=True, rows=9, columns=30))["process"]
    await desk.spawn("write", process=process, input="hello")
    await desk.spawn("write", process=process, keys=["ctrl-c"])
    seen = await desk.until_ended(process)
    assert seen["screen"] == "9 30\nhello\ngot:hello\n^C"


@KERNELS
async def test_the_end_of_the_gateway_ends_its_commands(desk: Desk) -> None:
    mark = f"7{os.getpid() % 10000:04}"
    run = asyncio.create_task(desk.run(f"setsid sleep {mark} & sleep {mark}"))
    await eventually(lambda: alive(mark) == 2)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await eventually(lambda: alive(mark) == 0)


@pytest.mark.parametrize("kernel", [f"landlock=0, {WITHOUT}", f"landlock=5, {WITHOUT}"])
async def test_a_command_that_kills_what_watches_it_ends_with_the_container(desk: Desk) -> None:
    mark = f"6{os.getpid() % 10000:04}"
    answer = await desk.run(f"(setsid sleep {mark} &); kill -STOP $PPID; kill -9 $PPID; sleep {mark}")
    assert answer["exit_code"] is None
    await eventually(lambda: alive(mark) == 0)
    await eventually(lambda: answers(desk))
    assert (await desk.run("echo again"))["output"] == "again\n"


@KERNELS
async def test_a_command_that_removes_the_socket_gains_nothing(desk: Desk, tmp_path: Path) -> None:
    jail = desk.workshop
    assert isinstance(jail, RemoteWorkshop)
    data = tmp_path / "database"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as database:
        database.bind(str(data))
        database.listen()
        database.setblocking(False)
        await desk.run(f"rm -f {jail.path}; ln -s {data} {jail.path}")
        await eventually(lambda: answers(desk))
        assert (await desk.run("echo again"))["output"] == "again\n"
        with pytest.raises(BlockingIOError):
            database.accept()


async def test_what_nobody_sends_is_answered_or_closed(desk: Desk) -> None:
    jail = desk.workshop
    assert isinstance(jail, RemoteWorkshop)
    command = WorkshopRequest(Command(("true",), "", Tier.CONTAINER, 0))
    nothing = os.open(os.devnull, os.O_RDWR)
    files = pack_request(replace(command, folder="/tmp/files"))  # of which no archive comes
    for packet, descriptors in (
        (b"junk", 0),
        (pack_request(command), 0),
        (pack_request(command), 2),
        (b"x" * 140_000, 0),
        (files, 5),
        (files, 5),
    ):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.connect(str(jail.path))
            socket.send_fds(one, [packet], [nothing] * descriptors)
            one.settimeout(10)
            problem = parse_reply(await asyncio.to_thread(one.recv, 4096)).problem
            assert "not a zip file" in problem if packet == files else problem
    os.close(nothing)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(jail.path))
        assert (await desk.run("echo works"))["output"] == "works\n"


async def test_without_the_service_there_are_no_commands_and_that_is_said(desk: Desk, tmp_path: Path) -> None:
    away = Desk(tmp_path, RemoteWorkshop(tmp_path, path=tmp_path / "nothing"))
    assert "docker compose up -d workshop" in (await away.outcome("true")).text
    (tmp_path / "stale").symlink_to(tmp_path)
    for path in (tmp_path / "nothing", tmp_path / "stale"):
        with pytest.raises(NoJail, match="docker compose up -d workshop"):
            await RemoteWorkshop(tmp_path, path=path).tier()
    jail = desk.workshop
    assert isinstance(jail, RemoteWorkshop)
    strict = RemoteWorkshop(tmp_path, path=jail.path)
    with pytest.raises(NoJail, match="not the service of commands"):
        await strict.tier()


async def test_the_limits_hold(desk: Desk) -> None:
    answer = await desk.run("python3 -c 'x = bytearray(1500 << 20)' 2>&1 | tail -1")
    assert "MemoryError" in answer["output"]


async def test_nothing_runs_where_the_journals_can_be_written(tmp_path: Path) -> None:
    for name in ("sockets", "workspace/sessions", "workspace/memory"):
        (tmp_path / name).mkdir(parents=True)
    jail = ContainerWorkshop(tmp_path)
    serving = asyncio.create_task(Service(tmp_path / "sockets", tmp_path / "workspace", jail, anyone).serve())
    path = tmp_path / "sockets/workshop.sock"
    await eventually(path.exists)
    with pytest.raises(NoJail, match="sessions/ is not mounted read-only"):
        await RemoteWorkshop(tmp_path, path=path, admits=anyone).tier()
    path.unlink()
    await asyncio.wait_for(serving, 20)


def answers(desk: Desk) -> bool:
    jail = desk.workshop
    assert isinstance(jail, RemoteWorkshop)
    with suppress(NoJail):
        jail._ask(None, [])
        return True
    return False


def alive(mark: str) -> int:
    found = 0
    for process in Path("/proc").iterdir():
        try:
            found += process.name.isdigit() and (process / "cmdline").read_bytes() == f"sleep\0{mark}\0".encode()
        except OSError:
            continue
    return found
