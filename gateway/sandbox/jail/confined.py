"""The process that becomes the command: it gives up everything else first."""

import errno
import fcntl
import os
import resource
import signal
import socket
import termios
from typing import NoReturn, TypeAlias

from gateway.sandbox.command import Command, Tier
from gateway.sandbox.jail import landlock, namespaces, program_filter
from gateway.sandbox.jail.kernel import DUMPABLE, drop_bounds, drop_privileges, set_control
from gateway.sandbox.jail.usage import OPEN_FILES, ControlGroup

_FIRST_TO_DIE = 1000
LISTENER = b"\0"
_NICE = 10
"""So that the watcher of a fork bomb gets its turn, and the gateway, too."""
_OTHERS = 1024
"""Processes and threads of the same user elsewhere, which count, too, without namespaces."""

Standard: TypeAlias = tuple[int, int, int]
"""The descriptors of input, output and errors."""


def become(command: Command, standard: Standard, status: socket.socket, group: ControlGroup | None) -> NoReturn:
    """Run the command in place of this process. `status` gets the listener of its filter, or why it failed."""
    try:
        os.setsid()
        if group:
            group.join()
        _set_standard(*standard, status.detach())
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if command.tier is not Tier.NAMESPACES:
            prefer_to_kill()
        _limit(command)
        _enter_folder(command)
        if (listener := _give_up(command)) is not None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=os.dup(3)) as there:
                socket.send_fds(there, [LISTENER], [listener])
        environment = namespaces.command_environment(command)
        os.nice(_NICE)
        os.execvpe(command.arguments[0], command.arguments, environment)  # noqa: S606
    except (OSError, ValueError) as error:
        os.write(3, _problem(command, error).encode()[:4000])
    finally:
        os._exit(126)


def _enter_folder(command: Command) -> None:
    try:
        os.chdir(os.path.join(namespaces.workspace_of(command), command.folder))
    except OSError as error:
        raise NotADirectoryError(f"{command.folder!r}: no such folder in the workspace") from error


def _problem(command: Command, error: Exception) -> str:
    match error:
        case NotADirectoryError(args=(str(text),)):
            return text
        case FileNotFoundError():
            return f"{command.arguments[0]!r}: no such program here"
        case OSError(errno=errno.E2BIG):
            return "the command is too long for the kernel; put its text into a file and pass the path"
        case _:
            return f"{type(error).__name__}: {error}"


def prefer_to_kill() -> None:
    """Have the kernel kill this process and its children first when memory runs out."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(_FIRST_TO_DIE))


def _set_standard(*descriptors: int) -> None:
    high = [os.dup(each) for each in descriptors]
    for target, source in enumerate(high):
        os.dup2(source, target, inheritable=target < 3)
    os.closerange(4, OPEN_FILES)


def _limit(command: Command) -> None:
    limits = command.limits
    for what, most in (
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_DATA, limits.memory),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_NPROC, limits.processes + (0 if command.tier is Tier.NAMESPACES else _OTHERS)),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    os.umask(0o077)
    for each in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)


def _give_up(command: Command) -> int | None:
    drop_bounds()
    drop_privileges()
    set_control(DUMPABLE)
    if command.landlock:
        landlock.restrict(namespaces.file_access(command), command.landlock, port=_port(command))
    return program_filter.restrict(command.tier, command.landlock, network=bool(command.network))


def _port(command: Command) -> int | None:
    """The port that Landlock allows; 0 for any, in a network of its own."""
    if not command.network:
        return None
    return 0 if command.tier is Tier.NAMESPACES else command.proxy[1]
