"""The machine: its memory, its clock, how many files may be open, the port."""

import ctypes
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gateway.cli.checks.finding import Finding, Level, Patient
from gateway.config.instance import holder
from gateway.domain.errors import OwnerMustAct

_MIB = 2**20
_LEAST_MIB, _ENOUGH_MIB = 256, 512
"""The gateway takes 125 MB, 270 with litellm, and the embedded Postgres 35; files being read come on top."""
_FEW_FILES = 1024
_OLDEST_YEAR = 2026
_UNSYNCHRONISED = 5


def check_memory(patient: Patient) -> Iterator[Finding]:
    """The machine, or the container, has memory for the gateway and its database."""
    from gateway.background.footprint import available

    cgroup, mount = patient.root / "proc/self/cgroup", patient.root / "sys/fs/cgroup"
    has, ceiling = available(cgroup, mount) // _MIB, patient.config.limits.memory_mb
    text = f"{has:,} MB on this machine or in its container"
    if has < _ENOUGH_MIB:
        level = Level.FAIL if has < _LEAST_MIB else Level.WARN
        yield Finding(level, "memory", text, f"give it {_ENOUGH_MIB} MB or more")
    elif ceiling and ceiling > has:
        fix = f"set limits.memory_mb to {has // 2} or less"
        yield Finding(Level.WARN, "memory", f"limits.memory_mb is {ceiling:,}, but there are only {has:,} MB", fix)
    else:
        yield Finding(Level.OK, "memory", text)


def check_open_files(_patient: Patient) -> Iterator[Finding]:
    """Enough connections and files can be open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        fix = f"ulimit -n {_FEW_FILES * 4}, or LimitNOFILE={_FEW_FILES * 4} in its systemd unit"
        yield Finding(Level.WARN, "open files", f"only {soft} may be open at once", fix)
    else:
        many = "any number" if soft == resource.RLIM_INFINITY else f"{soft:,}"
        yield Finding(Level.OK, "open files", f"{many} may be open at once")


def kernel_clock() -> int | None:
    """What the kernel says of its clock (`adjtimex`, which changes nothing here); None where it cannot be asked."""
    with suppress(OSError, AttributeError):
        state = int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024)))
        return state if state >= 0 else None
    return None


def check_clock(
    _patient: Patient,
    now: datetime | None = None,
    kernel: Callable[[], int | None] = kernel_clock,
    zone: str = "Europe/Berlin",
) -> Iterator[Finding]:
    """The clock is right, kept right, and knows the time zones."""
    now = now or datetime.now(UTC)
    if now.year < _OLDEST_YEAR:
        fix = "set the clock: with a wrong one, secure connections are refused"
        yield Finding(Level.FAIL, "clock", f"the clock says {now:%Y-%m-%d}", fix)
        return
    if kernel() == _UNSYNCHRONISED:
        fix = "`timedatectl set-ntp true`, or install chrony; a virtual machine may get its time from its host instead"
        yield Finding(Level.WARN, "clock", f"{now:%Y-%m-%d %H:%M} UTC; nothing here keeps the clock right", fix)
    else:
        yield Finding(Level.OK, "clock", f"{now:%Y-%m-%d %H:%M} UTC, {time.strftime('%H:%M %Z')} here")
    try:
        ZoneInfo(zone)
    except ZoneInfoNotFoundError:
        yield Finding(
            Level.WARN, "clock", "the time zones are not installed", "install tzdata, from the system or PyPI"
        )


def check_port(patient: Patient) -> Iterator[Finding]:
    """The page's port is free, or it is our own gateway that has it."""
    from gateway.app.local import listening

    web = patient.config.web
    where = f"{web.host}:{web.port}"
    if pid := holder(patient.environment.data):
        yield Finding(Level.OK, "port", f"the gateway runs (pid {pid}) and has {where}")
        return
    try:
        listening(web.host, web.port).close()
    except OwnerMustAct as error:
        problem, _, fix = str(error).rpartition("; ")
        yield Finding(Level.FAIL, "port", problem.partition(" (")[0], fix)
    else:
        yield Finding(Level.OK, "port", f"{where} is free")
