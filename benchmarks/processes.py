"""What processes cost, as the kernel tells it; Linux only."""

import os
from pathlib import Path

import psutil

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads so far, without child processes."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def cpu_ns(pid: int) -> int:
    """Nanoseconds that the first thread has computed so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def pss_mb(*pids: int) -> float:
    """Memory of these processes, each page shared out among all that map it; in MB of 1024² bytes."""
    return sum(map(_pss_kb, pids)) / 1024


def postgres_pids(data: Path) -> list[int]:
    """The embedded server of a data folder, postmaster first."""
    postmaster = psutil.Process(int((data / "postgres" / "postmaster.pid").read_text().splitlines()[0]))
    return [postmaster.pid, *(child.pid for child in postmaster.children(recursive=True))]


def _pss_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
