"""Checks of the machine: Python, memory, the clock, the port, and the kernel's sandbox."""

import asyncio
import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

from gateway.app.checks.context import CheckContext, fail, ok, refused, warn
from gateway.beside import afterwards
from gateway.config.data.instance import running_pid
from gateway.config.machine import available_memory
from gateway.domain.errors import OwnerMustAct
from gateway.domain.health import Finding, FindingLevel
from gateway.sandbox.command import Tier
from gateway.sandbox.jail import landlock, seccomp
from gateway.sandbox.remote.client import open_workshop
from gateway.sandbox.workshop import NoJail, NoNetwork, Workshop

_LEAST_MIB, _ENOUGH_MIB = 256, 512
"""The gateway needs 125 MB, 270 MB with litellm, and the embedded Postgres 35 MB; reading files needs more."""
_OLDEST_YEAR = 2026
_UNSYNCHRONISED = 5
_LEAST_LANDLOCK = 3
"""Before this version of Landlock, jailed code can empty files outside the jail."""
_ENGINES = {
    Tier.NAMESPACES: "namespaces, Landlock and seccomp",
    Tier.LANDLOCK: "Landlock, seccomp and a supervisor of calls",
    Tier.CONTAINER: "a container, seccomp, and Landlock if there is any",
}


def check_python(_context: CheckContext, version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[Finding]:
    """Check that Python is new enough."""
    text = f"Python {'.'.join(map(str, version))}"
    yield ok(text) if version >= (3, 11) else fail(text, "install Python 3.11 or newer")


def check_memory(_context: CheckContext, available: int | None = None) -> Iterator[Finding]:
    """Check that the machine or container has enough memory for the gateway and its database."""
    has = (available_memory() if available is None else available) // 2**20
    level = FindingLevel.OK if has >= _ENOUGH_MIB else FindingLevel.WARN if has >= _LEAST_MIB else FindingLevel.FAIL
    fix = "" if level is FindingLevel.OK else f"give it {_ENOUGH_MIB} MB or more"
    yield Finding(level, f"{has:,} MB on this machine or in its container", fix)


def kernel_clock() -> int | None:
    """The kernel's clock state (`adjtimex`, read-only); None if it is unavailable."""
    with suppress(OSError, AttributeError):
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024)))
    return None


def check_clock(
    _context: CheckContext, now: datetime | None = None, kernel: Callable[[], int | None] = kernel_clock
) -> Iterator[Finding]:
    """Check that the clock is plausible and synchronised."""
    text = f"{now or datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    if int(text[:4]) < _OLDEST_YEAR:
        yield fail(f"{text} is in the past", "set the clock: secure connections fail with a wrong one")
    elif kernel() == _UNSYNCHRONISED:
        fix = "run `timedatectl set-ntp true`, or install chrony; a virtual machine may get its time from its host"
        yield warn(f"{text}; the clock is not synchronised", fix)
    else:
        yield ok(text)


def check_port(context: CheckContext) -> Iterator[Finding]:
    """Check that the web port is free, or that our own gateway holds it."""
    from gateway.app.local import listen_as_configured, reserve_other_loopback

    web = context.config.web
    if pid := running_pid(context.environment.data):
        yield ok(f"the gateway (pid {pid}) is using it")
        return
    try:
        code = context.environment.first_code
        with listen_as_configured(web, code) as socket, reserve_other_loopback(socket):
            pass
    except OwnerMustAct as error:
        yield refused(error)
    else:
        yield ok(f"{web.host}:{web.port} is free")


def check_jail(
    _context: CheckContext, version: Callable[[], int] = landlock.abi, filters: Callable[[], bool] = seccomp.supported
) -> Iterator[Finding]:
    """Check that the kernel can jail the process that reads people's files."""
    found, filtered = version(), filters()
    has = f"{f'Landlock {found}' if found else 'no Landlock'}, {'' if filtered else 'no '}seccomp"
    if found >= _LEAST_LANDLOCK and filtered:
        yield ok(f"{has}: each file is read in a jail")
    else:
        text = f"{has}: code hidden in a file that somebody sends could reach what the gateway can reach"
        yield warn(text, "use Linux 6.2 or newer with Landlock and seccomp")


def check_exec(context: CheckContext) -> Iterator[Finding]:
    """Check that the kernel can confine the commands that the agent runs."""
    if context.config.tools.exec.mode == "off":
        yield ok("tools.exec.mode is off: the agent runs no commands")
        return
    try:
        found = asyncio.run(
            _confinement(open_workshop(context.environment.data / "scratch", context.environment.workshop))
        )
    except NoJail as error:
        yield warn(f"the agent runs no commands: {error}", "see docs/security.md, Commands")
        return
    place = f"the service behind {service}" if (service := context.environment.workshop) else "a jail"
    yield ok(f"commands of the agent run in {place}: {found}")


async def _confinement(jail: Workshop) -> str:
    """How the jail confines commands and what they lack in it, in words; raises `NoJail`."""
    async with afterwards(jail.close):
        told = _ENGINES[await jail.tier()]
        try:
            await jail.network()
        except NoNetwork as error:
            return f"{told}; {error}"
        return told
