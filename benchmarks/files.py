"""`python -m benchmarks.files`: what it takes to look at a large workspace, first, again, and after a restart.

Each look is what a command of `exec` waits for: the states of all files, and the hashes of those that changed. It runs
in a thread, as in the gateway, while this measures how late the event loop is.
"""

import argparse
import asyncio
import random
import resource
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time, sleep

from gateway.workspace.files.disk import UNSETTLED_NS
from gateway.workspace.files.index import FileIndex

PER_FOLDER = 200
TICK_SECONDS = 0.01


def fill(root: Path, files: int, size: int) -> None:
    """Folders of 200 files, all different, of about the same length."""
    piece = bytearray(random.Random(1).randbytes(size // files))
    for number in range(files):
        folder = root / f"{number // PER_FOLDER // 50:03}" / f"{number // PER_FOLDER % 50:02}"
        if number % PER_FOLDER == 0:
            folder.mkdir(parents=True)
        piece[:8] = number.to_bytes(8, "big")
        (folder / f"{number}.md").write_bytes(piece)


def look(index: FileIndex) -> int:
    """As before a command; the number of files."""
    return len(index.hashes(index.snapshot(lambda parts: parts[0] in {"sessions", "memory", "uploads"}).files))


async def timed(name: str, work: Callable[[], object]) -> None:
    """Print how long it takes, and what that does to the event loop and to memory."""
    lags = list[float]()

    async def tick() -> None:
        while True:
            began = perf_counter()
            await asyncio.sleep(TICK_SECONDS)
            lags.append(1000 * (perf_counter() - began - TICK_SECONDS))

    ticking = asyncio.create_task(tick())
    began, cpu = perf_counter(), process_time()
    await asyncio.to_thread(work)
    seconds, cpu = perf_counter() - began, process_time() - cpu
    ticking.cancel()
    worst = f"loop at most {max(lags):.0f} ms late" if lags else ""
    print(f"{name:<28} {seconds:7.2f} s {cpu:7.2f} CPU s   {resident():5} MB   {worst}")


def resident() -> int:
    """Megabytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20


async def measure(base: Path, files: int, size: int) -> None:
    """Print a line for each step."""
    root, kept = base / "workspace", base / "data" / "index"
    await timed("made", lambda: fill(root, files, size))
    await asyncio.sleep(UNSETTLED_NS / 1e9 + 0.5)
    index = FileIndex(root, kept)
    await timed("nothing", lambda: sleep(5))
    await timed("first look", lambda: look(index))
    await timed("second look", lambda: look(index))
    (root / "000" / "00" / "0.md").write_bytes(b"changed")
    await timed("after one change", lambda: look(index))
    await timed("saved", index.save)
    await timed("after a restart", lambda: look(FileIndex(root, kept)))
    print(f"{kept.stat().st_size >> 20} MB of index") if kept.exists() else print("not saved: no note of mappings")


def main() -> None:
    """Fill a temporary folder, look, and delete it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--gb", type=float, default=5.0)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where to make it (default: %(default)s)")
    given = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="supaclaw-bench-", dir=given.folder))
    try:
        asyncio.run(measure(base, given.files, int(given.gb * 1024**3)))
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
