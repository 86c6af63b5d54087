"""`python -m benchmarks.jail`: what the jail adds to a command that does nothing, in each jail of this kernel and user.

Plain starts and jailed ones take turns. Run it as the user that the gateway has: root has namespaces alone.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.statistics import p95
from gateway.sandbox.command import Command, Ending, Limits, Tier
from gateway.sandbox.workshop import NoJail, Workshop

PROGRAM = "/bin/true"
TIMES = 200
LIMITS = Limits(spare_disk_bytes=0)


async def _plain() -> None:
    process = await asyncio.create_subprocess_exec(PROGRAM)
    await process.wait()


def _jailed(workshop: Workshop, folder: str, tier: Tier) -> Callable[[], Awaitable[None]]:
    scratch = "" if tier is Tier.NAMESPACES else str(workshop.scratch)
    command = Command((PROGRAM,), folder, tier, workshop.landlock, scratch=scratch, limits=LIMITS)

    async def run() -> None:
        running = await workshop.start(command)
        async for _ in running.pieces():
            pass
        report = await running.report()
        running.close()
        assert report.ending is Ending.EXITED, report

    return run


async def measure(times: int) -> dict[str, list[float]]:
    """Milliseconds of each start, by the jail."""
    with tempfile.TemporaryDirectory(prefix="supaclaw-bench-") as base:
        folder, jails = tempfile.mkdtemp(dir=base), list[Workshop]()
        ways: dict[str, Callable[[], Awaitable[None]]] = {"none": _plain}
        for tier in (Tier.NAMESPACES, Tier.LANDLOCK):
            others = frozenset(Tier) - {tier}
            jail = Workshop(Path(tempfile.mkdtemp(dir=base)), without=others)
            jails.append(jail)
            try:
                ways[tier.value] = _jailed(jail, folder, await jail.tier())
            except NoJail as error:
                sys.stderr.write(f"not in {tier}: {error}\n")
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(times):
            for name, run in ways.items():
                began = perf_counter()
                await run()
                found[name].append((perf_counter() - began) * 1000)
        for jail in jails:
            await jail.close()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES)
    found = asyncio.run(measure(parser.parse_args().times))
    plain = median(found["none"])
    print(f"| jail | {PROGRAM}, p50 / p95 | least | added, p50 |\n|---|---|---|---|")
    for name, each in found.items():
        middle = median(each)
        print(f"| {name} | {middle:.1f} / {p95(each):.1f} ms | {min(each):.1f} ms | {middle - plain:.1f} ms |")


if __name__ == "__main__":
    main()
