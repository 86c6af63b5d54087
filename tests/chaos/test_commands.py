"""Commands that take everything, never end, or outlive what started them; each is bounded, should the jail not be."""

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.chaos.conftest import FULL, Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Ledger
from tests.chaos.people import Telegrammers, crowd
from tests.chaos.test_limits import memory
from tests.fakes.disks import disk, needs_root
from tests.fakes.eventually import eventually
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess
from tests.sandbox.tiers import confines

pytestmark = pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")

HOG = "for i in 1 2 3 4 5; do python3 -c 'b = bytearray(400 << 20); import time; time.sleep(60)' & done; wait"
COMETS = """ulimit -u 200; python3 -c '
import os, time
for _ in range(12):
    if not os.fork():
        end = time.time() + 60
        while time.time() < end:
            try:
                if os.fork(): os._exit(0)
            except OSError: pass
time.sleep(60)
' {mark}"""
BOMBS = ("ulimit -u 200; : {mark}; bomb() {{ bomb | bomb & }}; bomb; sleep 60", COMETS)
STUBBORN = (
    "trap '' TERM HUP INT; (setsid nohup sh -c 'trap \"\" TERM HUP; sleep {mark}' &) ; sleep {mark}; sleep {mark}"
)


def calling(*calls: Call) -> list[Rule]:
    """A model that makes these calls, one after another, when a message says so."""
    return [Rule(f"step {number}", tool_calls=(call,)) for number, call in enumerate(calls)]


def alive(mark: str) -> Sequence[int]:
    """The processes that have it in their command line."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and mark.encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


async def results(process: GatewayProcess) -> str:
    """Of all tool calls."""
    return "\n".join(row["text"] for row in await process.rows("select text from messages where kind = 'tool_result'"))


@pytest.fixture
def mark() -> str:
    return f"7{os.getpid() % 100_000:05}{random.randrange(10_000):04}"


async def talk(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, *calls: Call
) -> tuple[Telegrammers, Ledger]:
    """Running, with a model that makes these calls at `step 0`, `step 1`, …"""
    process.configure(crowd(telegram, models))
    models.rules = calling(*calls)
    await process.start()
    return Telegrammers(telegram, chance, tools=0.0), Ledger(process, telegram)


@pytest.mark.fault(Fault.JAIL)
async def test_a_command_out_of_memory_is_an_answer(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    people, ledger = await talk(process, telegram, models, chance, Call("exec", {"command": HOG}))
    people.say(OWNER, "step 0")
    for chat in people.chats:
        people.say(chat)
    settled = await ledger.settled(60)
    judge(Fault.JAIL, await ledger.count(people.said))
    assert settled
    assert "more memory than it may" in await results(process)
    assert process.running.returncode is None


@pytest.mark.fault(Fault.CHILDREN)
@pytest.mark.parametrize("end", ["/stop", "SIGKILL", "SIGTERM"] if FULL else ["/stop"])
@pytest.mark.parametrize("tool", ["exec", "spawn"])
async def test_a_child_that_ignores_signals_and_hides_is_gone_with_its_turn_or_its_gateway(
    process: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    mark: str,
    tool: str,
    end: str,
) -> None:
    line = STUBBORN.format(mark=mark)
    call = Call("exec", {"command": line, "seconds": 600}) if tool == "exec" else start(line)
    people, ledger = await talk(process, telegram, models, chance, call)
    people.say(OWNER, "step 0")
    await eventually(lambda: len(alive(mark)) >= 3)
    if tool == "spawn":
        assert await ledger.settled(30), "the turn is over, the process is not"
        assert len(alive(mark)) >= 3
    if end == "/stop":
        people.command("/stop", OWNER)
    else:
        await (process.kill() if end == "SIGKILL" else process.terminate())
    await eventually(lambda: alive(mark) == [], 20)
    if end != "/stop":
        await process.start()
    people.say(OWNER)
    settled = await ledger.settled(60)
    judge(Fault.CHILDREN, await ledger.count(people.said))
    assert settled


def start(line: str) -> Call:
    return Call("spawn", {"action": "start", "command": line})


@pytest.mark.chaos
@pytest.mark.fault(Fault.FORK_BOMB)
@pytest.mark.parametrize("bomb", BOMBS, ids=["bomb", "comets"])
async def test_a_gateway_killed_while_a_fork_bomb_runs_takes_it_along(
    process: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    mark: str,
    bomb: str,
) -> None:
    people, ledger = await talk(process, telegram, models, chance, start(bomb.format(mark=mark)))
    people.say(OWNER, "step 0")
    await eventually(lambda: len(alive(mark)) >= 1)
    await process.kill()
    await eventually(lambda: alive(mark) == [], 30)
    await process.start()
    people.say(OWNER)
    settled = await ledger.settled(60)
    judge(Fault.FORK_BOMB, await ledger.count(people.said))
    assert settled


@needs_root
@pytest.mark.chaos
@pytest.mark.fault(Fault.FILLED)
async def test_a_disk_filled_from_inside_ends_the_command_alone(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    fill = "i=0; while :; do i=$((i+1)); dd if=/dev/zero of=big$i bs=1M count=16 2>/dev/null || sleep 60; done"
    with disk(process.workspace, 420):
        try:
            people, ledger = await talk(
                process,
                telegram,
                models,
                chance,
                Call("exec", {"command": fill}),
                Call("exec", {"command": "rm -f big*; echo room again"}),
            )
            people.say(OWNER, "step 0")
            assert await ledger.settled(90)
            room = os.statvfs(process.workspace)
            people.say(OWNER, "step 1")
            settled = await ledger.settled(60)
            judge(Fault.FILLED, await ledger.count(people.said))
            assert settled
            told = await results(process)
            assert "It filled the disk" in told
            assert "room again" in told
            assert room.f_bavail > 0, "others have some left"
        finally:
            await process.close()


@pytest.mark.chaos
@pytest.mark.fault(Fault.OUTPUT)
@pytest.mark.parametrize("tool", ["exec", "spawn"])
async def test_a_gigabyte_of_output_takes_neither_memory_nor_time(
    process: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    mark: str,
    tool: str,
) -> None:
    line = f": {mark}; head -c 1G /dev/zero | tr '\\0' x; true"
    call = Call("exec", {"command": line, "seconds": 600}) if tool == "exec" else start(line)
    people, ledger = await talk(process, telegram, models, chance, Call("exec", {"command": "true"}), call)
    people.say(OWNER, "step 0")
    assert await ledger.settled(30)
    before = memory(process)
    people.say(OWNER, "step 1")
    await eventually(lambda: bool(alive(mark)))
    for chat in people.chats:
        people.say(chat)
    settled = await ledger.settled(120)
    if tool == "exec":
        assert "more than 64 MB" in await results(process)
    else:
        await eventually(lambda: alive(mark) == [], 400)
    grown = memory(process) - before
    busy = psutil.Process(process.running.pid).cpu_times()
    judge(
        Fault.OUTPUT, await ledger.count(people.said), f"{tool}: +{grown:.0f} MB, {busy.user + busy.system:.0f} CPU s"
    )
    assert settled
    assert grown < 40
