"""What the process takes of the machine's memory."""

import ctypes
import resource
import sys
from contextlib import suppress
from pathlib import Path

from gateway.config.machine import available_memory

ENOUGH = 384 * 2**20
"""Bytes that the gateway with every SDK loaded may need at once."""

_STATM = Path("/proc/self/statm")


def resident() -> int:
    """Bytes of this process in memory; where there is no /proc, the most it ever had."""
    with suppress(OSError):
        return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def ceiling(memory_mb: int | None) -> int:
    """The configured ceiling in bytes, else half of what the machine or its container has, and enough to work with."""
    return max(available_memory() // 2, ENOUGH) if memory_mb is None else memory_mb * 2**20


def trim() -> None:
    """Give freed memory back to the system, where the C library can (glibc); may take a while."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
