"""The agent's commands, through both services: what they do, and what they cannot."""

import asyncio
import json
import os
from pathlib import Path

from docker.check.container import SECONDS, Container
from docker.check.shell import check
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, until

BUILT = "fin90x"
"""In the agent's answer when it has used a command."""
_ASK = """
import asyncio, sys
from pathlib import Path
from gateway.sandbox.command import Command, Limits
from gateway.sandbox.remote.client import RemoteWorkshop

async def main():
    jail = RemoteWorkshop(Path("/tmp"), path=Path("/sockets/workshop.sock"))
    line = ("/bin/sh", "-c", sys.argv[1])
    running = await jail.start(Command(line, "", await jail.tier(), 0, limits=Limits(seconds=float(sys.argv[2]))))
    async for piece in running.pieces():
        print(piece.decode(), end="")
    print((await running.report()).ending)

asyncio.run(main())
"""
_CONNECT = """
import socket
for family, kind, to in ((1, 5, "/sockets/workshop.sock"), (2, 1, ("127.0.0.1", 22)), (2, 2, ("1.1.1.1", 53))):
    try: socket.socket(family, kind).connect(to); print("GOT")
    except OSError as error: print("refused")
"""
_NETWORK = """
import asyncio
from pathlib import Path
from gateway.net import proxy
from gateway.net.addresses import Rules
from gateway.sandbox.command import Command
from gateway.sandbox.remote.client import RemoteWorkshop

async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\n\\r\\nserved")
    await writer.drain()

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    place = "127.0.0.1:%d" % server.sockets[0].getsockname()[1]
    line = "import urllib.request as u; print(u.urlopen('http://%s/').read().decode())" % place
    jail = RemoteWorkshop(Path("/tmp"), path=Path("/sockets/workshop.sock"))
    for hosts in ([place], ["example.org"]):
        command = Command(("python3", "-c", line), "", await jail.tier(), 0)
        running = await proxy.start(jail, command, hosts, lambda: Rules.of([place]))
        async for piece in running.pieces():
            print(piece.decode(), end="")
        await running.gone()

asyncio.run(main())
"""
_ATTACKS = {
    "the gateway's data, configuration and keys": "cat /data/*/* /config/* /proc/1/environ /sockets/* | grep .",
    "its processes": "ls /proc/*/cwd/ | grep -E 'postgres|keys'; tr '\\\\0' ' ' < /proc/2/cmdline | grep postgres",
    "its journals": "rm -f sessions/*/* && echo x > sessions/x && ls sessions/x",
    "the system": "for x in / /usr /app /etc; do touch $x/x && echo $x; done | grep .",
    "rights": "unshare -Ur id -u | grep 0; mount -t tmpfs none /mnt && echo mounted",
}


async def commands(container: Container, workshop: Container, telegram: FakeTelegram, models: FakeModels) -> None:
    """Raises `SystemExit` at the first thing that is not as promised."""
    code, told = await container.run("supaclaw", "doctor")
    check(code == 0 and "-d workshop" in told, "without the service the doctor says so")
    await workshop.begin()
    await until(lambda: _there(workshop), SECONDS)
    _, told = await container.run("supaclaw", "doctor")
    check("run in the service behind" in told, "the doctor finds the service")
    await _by_the_agent(container, telegram, models)
    for name, line in _ATTACKS.items():
        told = await _told(container, f"({line}) && echo GOT")
        check("GOT" not in told and told.endswith("exited"), f"a command does not get at {name}")
    told = await _told(container, f"python3 -c '{_CONNECT.replace(chr(39), chr(34))}'")
    check(told.split() == ["refused"] * 3 + ["exited"], "nor at the network or a socket")
    _, told = await container.run("python3", "-c", _NETWORK)
    check(told.startswith("served\n") and "403" in told, "but a host that is approved, through the gateway")
    code, _ = await workshop.run("python3", "-c", _ASK, "true", "5")
    check(code != 0, "and the service takes nothing from its own container")
    await _ends(container)


async def _by_the_agent(container: Container, telegram: FakeTelegram, models: FakeModels) -> None:
    line = (
        "mkdir -p sums && echo 'print(1 + 2)' > sums/main.py && chmod +x sums/main.py && python3 sums/main.py && "
        "cd sums && ls -l"
    )
    models.rules.append(Rule(match="mk90x", tool_calls=(Call("exec", {"command": line}),)))
    telegram.say("build it mk90x", OWNER)
    await telegram.wait_for(lambda tg: any(BUILT in sent.text for sent in tg.sent), SECONDS)
    result = json.dumps(models.bodies[-1]["messages"][-1])
    check("exit_code" in result and "3\\\\n" in result, "the agent runs a program that it wrote")
    made = container.data / "workspace" / "sums" / "main.py"
    check((made.stat().st_uid, made.stat().st_mode & 0o777) == (10001, 0o700), "its files are the gateway's user's")


async def _ends(container: Container) -> None:
    begun = asyncio.create_task(container.run("python3", "-c", _ASK, "setsid sleep 98765 & sleep 98765", "60"))
    await until(lambda: _alive(2), SECONDS)
    begun.cancel()
    await asyncio.gather(begun, return_exceptions=True)
    for process in _processes(b"python3\0-c\0"):
        os.kill(process, 9)
    await until(lambda: _alive(0), SECONDS)
    check(True, "a command ends with the process that asked for it, killed")
    told = await _told(container, "(setsid sleep 98765 &); sleep 98765", seconds=1)
    check(told.endswith("timeout") and await _alive(0), "and at the end of its time, with all that it left")


async def _told(container: Container, line: str, seconds: int = 20) -> str:
    _, told = await container.run("python3", "-c", _ASK, line, str(seconds))
    return told


async def _there(workshop: Container) -> bool:
    return (workshop.data.parent / "sockets" / "workshop.sock").exists()


async def _alive(wanted: int) -> bool:
    return len(_processes(b"sleep\x0098765\0")) == wanted


def _processes(start: bytes) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().startswith(start) and process.stat().st_uid == 10001:
                found.append(int(process.name))
        except OSError:
            continue
    return found
