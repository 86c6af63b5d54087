"""The wall clock steps by an hour under a running gateway; the monotonic clock and Postgres go on.

libfaketime slows the interpreter's own waits so much that a start takes half a minute: wall_clock.c does only this.
"""

import random
import shutil
import struct
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.chaos.conftest import Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Ledger
from tests.chaos.people import Telegrammers, crowd
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import GatewayProcess, until

SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    """What the gateway takes for the time: the true one, and so many seconds."""

    def __init__(self, folder: Path) -> None:
        self._offset = folder / "seconds"
        self._library = folder / "wall_clock.so"
        self.step(0)
        compiler = ["cc", "-shared", "-fPIC", "-O2", "-o", str(self._library), str(SOURCE), "-ldl"]
        subprocess.run(compiler, check=True)

    def step(self, seconds: int) -> None:
        with open(self._offset, "r+b" if self._offset.exists() else "wb") as file:
            file.write(struct.pack("l", seconds))

    @property
    def environ(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "WALL_CLOCK": str(self._offset)}


def seconds_ahead(process: GatewayProcess) -> float:
    """By how much its clock is ahead of ours, as its health file tells."""
    stamp = datetime.fromisoformat((process.data / "health").read_text().strip())
    return (stamp - datetime.now(UTC)).total_seconds()


@pytest.mark.chaos
@pytest.mark.fault(Fault.CLOCK)
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("hours", [(1, 0), (-1, 0), (1, -1, 24, -24, 0)], ids=["forth", "back", "both"])
async def test_a_clock_that_steps_repeats_nothing_and_leaves_nothing(
    process: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    hours: tuple[int, ...],
    tmp_path: Path,
) -> None:
    clock = WallClock(tmp_path)
    process.configure(crowd(telegram, models))
    people, ledger = Telegrammers(telegram, chance), Ledger(process, telegram)
    models.latency_ms = 300
    await process.start(**clock.environ)
    for step in hours:
        await people.go_on(1.5)
        clock.step(step * 3600)
        await people.go_on(2.5)
        assert await ledger.settled(30)
    await process.kill()
    people.say()
    clock.step(-hours[0] * 3600)
    await process.start(**clock.environ)
    assert await ledger.settled(30)
    judge(Fault.CLOCK, await ledger.count(people.said, tries=len(hours) + 1))

    async def its_clock_was_moved() -> bool:
        return abs(seconds_ahead(process) + hours[0] * 3600) < 60

    await until(its_clock_was_moved)
