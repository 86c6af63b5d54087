"""Steady mixed load for a long while, and the slope of everything that could grow.

`python -m tests.chaos.soak --minutes 30 [--json FILE]`; the exit code is 1 when memory grows by 1 MB an hour or more
beyond doubt, or file descriptors or threads grow. Linux only.
"""

import argparse
import asyncio
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import httpx
import psutil

from tests.chaos.people import Programs, Telegrammers, crowd, free_port
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess

MB = 1024 * 1024
EVERY = 5.0
WARM_UP = 0.33
"""The part of the run that is not looked at: caches fill."""
SURE = 3.0
"""A slope counts from so many standard errors on."""
LIMITS = {"uss_mb": 1.0, "postgres_mb": 1.0, "fds": 1.0, "threads": 1.0}
CHATS = range(OWNER, OWNER + 20)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the gateway and its Postgres hold at one time."""

    hours: float
    rss_mb: float
    uss_mb: float
    fds: int
    threads: int
    postgres_mb: float
    answers: int


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth per hour by least squares, and its standard error."""

    per_hour: float
    error: float

    def is_growth(self, limit: float) -> bool:
        """Whether it is at least `limit`, and clearly not nothing."""
        return self.per_hour >= limit and self.per_hour > SURE * self.error


def slope(hours: Sequence[float], figures: Sequence[float]) -> Slope:
    """Of at least three samples."""
    count = len(hours)
    mean_x, mean_y = sum(hours) / count, sum(figures) / count
    spread = sum((x - mean_x) ** 2 for x in hours)
    per_hour = sum((x - mean_x) * (y - mean_y) for x, y in zip(hours, figures, strict=True)) / spread
    missed = sum((y - mean_y - per_hour * (x - mean_x)) ** 2 for x, y in zip(hours, figures, strict=True))
    return Slope(per_hour, math.sqrt(missed / (count - 2) / spread))


def slopes(samples: Sequence[Sample]) -> dict[str, Slope]:
    """Of every figure, after the warm-up."""
    steady = samples[int(len(samples) * WARM_UP) :]
    hours = [sample.hours for sample in steady]
    names = [field.name for field in fields(Sample) if field.name not in ("hours", "answers")]
    return {name: slope(hours, [float(getattr(sample, name)) for sample in steady]) for name in names}


def growing(found: dict[str, Slope]) -> list[str]:
    """The figures that may not grow and do."""
    return [name for name, limit in LIMITS.items() if found[name].is_growth(limit)]


class Soak:
    """One gateway with its embedded Postgres, everything people do with it, and the samples."""

    def __init__(self, process: GatewayProcess, telegram: FakeTelegram, port: int, chance: random.Random) -> None:
        self._process = process
        self._telegram = telegram
        self._chance = chance
        self._people = Telegrammers(telegram, chance, CHATS, commands=0.15)
        self._programs = Programs(process, port)
        self._answers = 0
        self.samples: list[Sample] = []

    async def go_on(self, minutes: float) -> None:
        """All of it, for that long."""
        end = time.monotonic() + minutes * 60

        def over() -> bool:
            return time.monotonic() > end

        async with asyncio.TaskGroup() as group:
            for work in (self._write, self._start_afresh, self._view, self._forget, self._sample):
                group.create_task(work(over))
            group.create_task(self._programs.go_on(2, self._chance, over))

    async def _write(self, over: Callable[[], bool]) -> None:
        while not over():
            await self._people.go_on(EVERY, pause=0.8)

    async def _start_afresh(self, over: Callable[[], bool]) -> None:
        """Sessions end now and then, as they do in life."""
        while not over():
            await asyncio.sleep(EVERY)
            for command in ("/new", "/status", "/why", "/model", "/help"):
                self._people.command(command)

    async def _view(self, over: Callable[[], bool]) -> None:
        """Somebody opens the page, reads the stream for a while, and goes."""
        while not over():
            with suppress(httpx.HTTPError, TimeoutError):
                async with self._process.http() as client, asyncio.timeout(self._chance.uniform(1, 8)):
                    await client.get("/api/status")
                    await client.get("/api/sessions")
                    await client.get("/")
                    body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": "hello mk1x"}]}
                    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                        async for _ in response.aiter_bytes():
                            pass
            await asyncio.sleep(self._chance.uniform(0, 2))

    async def _forget(self, over: Callable[[], bool]) -> None:
        """The fakes keep what they saw; what is measured is another process, but ours must last too."""
        while not over():
            await asyncio.sleep(EVERY)
            self._answers += len(self._telegram.sent)
            for seen in (self._telegram.sent, self._telegram.calls, self._telegram.drafts, self._telegram.actions):
                seen.clear()
            self._people.said.clear()

    async def _sample(self, over: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not over():
            await asyncio.sleep(EVERY)
            sample = await asyncio.to_thread(self._measured, (time.monotonic() - began) / 3600)
            self.samples.append(sample)
            if len(self.samples) % 12 == 0:
                print(_told(sample), flush=True)

    def _measured(self, hours: float) -> Sample:
        gateway = psutil.Process(self._process.running.pid)
        memory = gateway.memory_full_info()
        answers = self._answers + len(self._programs.done)
        return Sample(
            hours=hours,
            rss_mb=memory.rss / MB,
            uss_mb=memory.uss / MB,
            fds=gateway.num_fds(),
            threads=gateway.num_threads(),
            postgres_mb=_postgres_mb(self._process.data),
            answers=answers,
        )


def _postgres_mb(data: Path) -> float:
    """What its processes have each to themselves: the shared memory fills up to its fixed size, and is no growth."""
    postmaster = psutil.Process(int((data / "postgres" / "postmaster.pid").read_text().splitlines()[0]))
    total = 0
    for process in (postmaster, *postmaster.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().uss
    return total / MB


def _told(sample: Sample) -> str:
    return (
        f"{sample.hours * 60:5.1f} min  rss {sample.rss_mb:6.1f}  uss {sample.uss_mb:6.1f} MB  fds {sample.fds:3d}  "
        f"threads {sample.threads:2d}  postgres {sample.postgres_mb:5.1f} MB  answers {sample.answers}"
    )


async def soak(home: Path, minutes: float, seed: str) -> list[Sample]:
    """The samples of one run."""
    port = free_port()
    async with FakeTelegram(light=True) as telegram, FakeModels(keep=10) as models:
        process = GatewayProcess(home)
        process.configure(crowd(telegram, models, CHATS))
        try:
            await process.start(SUPACLAW_PORT=str(port))
            run = Soak(process, telegram, port, random.Random(seed))
            await run.go_on(minutes)
            return run.samples
        finally:
            await process.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--json", type=Path, help="write samples and slopes there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="supaclaw-soak-") as home:
        samples = asyncio.run(soak(Path(home), options.minutes, options.seed))
    if len(samples) < 12:
        parser.error("too short to tell a slope: at least 2 minutes")
    found = slopes(samples)
    for name, each in found.items():
        print(f"{name:12s} {each.per_hour:+9.2f} per hour  ± {each.error:.2f}")
    print(f"answers      {samples[-1].answers}")
    grown = growing(found)
    if options.json is not None:
        told = {name: asdict(each) for name, each in found.items()}
        options.json.write_text(json.dumps({"slopes": told, "samples": [asdict(s) for s in samples], "growing": grown}))
    print("grows: " + ", ".join(grown) if grown else "nothing grows")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
