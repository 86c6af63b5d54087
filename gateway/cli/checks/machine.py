"""The machine: Python, memory, the clock, the port, and what its kernel offers to lock a command in."""

import ctypes
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

from gateway.cli.checks.finding import Finding, Level, Patient, refused
from gateway.config.instance import holder
from gateway.domain.errors import OwnerMustAct

_LEAST_MIB, _ENOUGH_MIB = 256, 512
"""The gateway takes 125 MB, 270 with litellm, and the embedded Postgres 35; files being read come on top."""
_OLDEST_YEAR = 2026
_UNSYNCHRONISED = 5
_LANDLOCK_CREATE_RULESET = 444
_ASK_VERSION = 1


def check_python(_patient: Patient, version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[Finding]:
    """Python is new enough."""
    text = f"Python {'.'.join(map(str, version))}"
    new = version >= (3, 11)
    yield Finding(Level.OK, text) if new else Finding(Level.FAIL, text, "install Python 3.11 or newer")


def check_memory(_patient: Patient, available: int | None = None) -> Iterator[Finding]:
    """The machine, or the container, has memory for the gateway and its database."""
    from gateway.background.watch import footprint

    has = (footprint.available() if available is None else available) // 2**20
    level = Level.OK if has >= _ENOUGH_MIB else Level.WARN if has >= _LEAST_MIB else Level.FAIL
    fix = "" if level is Level.OK else f"give it {_ENOUGH_MIB} MB or more"
    yield Finding(level, f"{has:,} MB on this machine or in its container", fix)


def kernel_clock() -> int | None:
    """What the kernel says of its clock (`adjtimex`, which changes nothing here); None where it cannot be asked."""
    with suppress(OSError, AttributeError):
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024)))
    return None


def check_clock(
    _patient: Patient, now: datetime | None = None, kernel: Callable[[], int | None] = kernel_clock
) -> Iterator[Finding]:
    """The clock is right, and kept right."""
    text = f"{now or datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    if int(text[:4]) < _OLDEST_YEAR:
        yield Finding(Level.FAIL, f"{text} is past", "set the clock: with a wrong one, secure connections are refused")
    elif kernel() == _UNSYNCHRONISED:
        fix = "`timedatectl set-ntp true`, or install chrony; a virtual machine may get its time from its host instead"
        yield Finding(Level.WARN, f"{text}; nothing here keeps the clock right", fix)
    else:
        yield Finding(Level.OK, text)


def check_port(patient: Patient) -> Iterator[Finding]:
    """The page's port is free, or it is our own gateway that has it."""
    from gateway.app.local import listening

    web = patient.config.web
    if pid := holder(patient.environment.data):
        yield Finding(Level.OK, f"the gateway runs (pid {pid}) and has it")
        return
    try:
        listening(web.host, web.port).close()
    except OwnerMustAct as error:
        yield refused(error)
    else:
        yield Finding(Level.OK, f"{web.host}:{web.port} is free")


def landlock() -> bool:
    """Asks for its version, which changes nothing; the call has the same number on every architecture."""
    with suppress(OSError, AttributeError):
        call, none = ctypes.CDLL(None).syscall, ctypes.c_void_p(None)
        version = call(ctypes.c_long(_LANDLOCK_CREATE_RULESET), none, ctypes.c_size_t(0), _ASK_VERSION)
        return platform.system() == "Linux" and int(version) > 0
    return False


def check_jail(_patient: Patient, offered: Callable[[], bool] = landlock) -> Iterator[Finding]:
    """Landlock makes a jail; a kernel that has it has seccomp too."""
    if offered():
        yield Finding(Level.OK, "Landlock; this version has no exec tool yet")
    else:
        fix = "a Linux 5.13 or newer with Landlock; all else works without"
        yield Finding(Level.WARN, "no Landlock: no exec tool is offered here", fix)
