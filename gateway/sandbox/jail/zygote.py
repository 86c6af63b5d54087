"""`python -m gateway.sandbox.jail.zygote`: the process that starts commands, small, so that a fork is cheap, and
without the gateway's data; and the watcher of each command, with which everything ends: the init of its namespaces,
or the process that adopts its orphans."""

import gc
import os
import select
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import NoReturn

from gateway.sandbox.command import MAX_REQUEST_BYTES, Command, Ending, Report, Tier, parse_command
from gateway.sandbox.jail import confined, landlock, namespaces, supervisor
from gateway.sandbox.jail.confined import Standard
from gateway.sandbox.jail.kernel import DUMPABLE, SET_NO_NEW_PRIVS, drop_bounds, drop_privileges, set_control
from gateway.sandbox.jail.supervisor import Supervisor
from gateway.sandbox.jail.usage import (
    Usage,
    disk_is_low,
    disks,
    memory_is_low,
    processes,
    socket_count,
    take_group,
    thread_count,
)

_CHILD_SUBREAPER = 36
_FIRST_LOOK, _LAST_LOOK = 0.01, 0.1
_ENDING_SECONDS = 10.0
_BACKLOG = 64
_LOW_DISK = "The disk has no space or no files to spare"


def watch(command: Command, standard: Standard, control: socket.socket) -> NoReturn:
    """Run the command until it ends or the gateway closes its end of `control`, which gets the report."""
    began = time.monotonic()
    report = Report(Ending.LOST)
    try:
        report = _run_command(command, standard, control)
    except (OSError, ValueError) as error:
        report = Report(Ending.REFUSED, problem=f"the jail cannot be built: {type(error).__name__}: {error}")
    finally:
        if _is_scoped(command) and _is_isolated():
            _end_all()
        elif command.tier is not Tier.NAMESPACES:
            _end_descendants(command.tier)
        if command.temporary and command.tier is not Tier.NAMESPACES:
            shutil.rmtree(command.temporary, ignore_errors=True)
        passed = int((time.monotonic() - began) * 1000)
        with suppress(OSError):
            control.send(Report(report.ending, report.code, report.problem, passed).packed())
        os._exit(0)


def _run_command(command: Command, standard: Standard, control: socket.socket) -> Report:
    group = take_group(command.limits)
    if command.tier is Tier.NAMESPACES:
        confined.prefer_to_kill()  # all of its namespace goes with it
        namespaces.enter_root(command)
        if command.network:
            namespaces.start_loopback()
    else:
        set_control(_CHILD_SUBREAPER)
        set_control(SET_NO_NEW_PRIVS)
        if _is_scoped(command):
            landlock.scope_signals()
    if command.tier is not Tier.CONTAINER and _is_scoped(command) and not _is_isolated():
        raise OSError("signals would reach others")
    if command.network:
        with socket.create_server(command.proxy, backlog=_BACKLOG) as listener:
            socket.send_fds(control, [b"listening"], [listener.fileno()])
    fillable = disks(command)
    if any(disk_is_low(each, command.limits) for each in fillable.values()):
        if not command.landlock:
            return Report(Ending.REFUSED, problem=f"{_LOW_DISK}; delete files first")
        os.write(standard[2], f"{_LOW_DISK}: this command can only read and delete.\n".encode())
        command, fillable = replace(command, deletes_only=True), {}
    sockets, is_low = socket_count(), memory_is_low(command.limits.spare_percent)
    status, status_there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if (child := os.fork()) == 0:
        confined.become(command, standard, status_there, group)
    status_there.close()
    for each in standard:
        os.close(each)
    drop_bounds()
    drop_privileges()
    set_control(DUMPABLE, 0)
    problem, calls = _start_result(status)
    if problem:
        return Report(Ending.REFUSED, problem=problem)
    group = group if group and group.holds_any() else None
    return _until_end(Usage(command, group, fillable, sockets, is_low), child, control, _supervisor(command, calls))


def _is_scoped(command: Command) -> bool:
    """Whether its signals reach its own processes only; else one to all would end everything of its user."""
    return command.tier is Tier.NAMESPACES or command.landlock >= landlock.SIGNALS_SINCE


def _start_result(status: socket.socket) -> tuple[str, int | None]:
    """Wait for the start; returns the problem, "" if it runs, and the listener of its filter, if it has one."""
    text, listener = b"", None
    with status:
        while True:
            piece, descriptors, *_ = socket.recv_fds(status, 4096, 1)
            if not piece:
                return text.decode("utf-8", "replace"), listener
            if descriptors:
                listener = descriptors[0]
            text += piece.strip(confined.LISTENER)


def _supervisor(command: Command, listener: int | None) -> Supervisor | None:
    if listener is None:
        return None
    handlers = supervisor.change_handlers(namespaces.file_access(command)) | supervisor.signal_handlers()
    handlers |= supervisor.start_handlers(lambda: thread_count(command.tier), command.limits.processes)
    return Supervisor(listener, handlers | (supervisor.connection_handlers(command.proxy) if command.network else {}))


def _until_end(usage: Usage, child: int, control: socket.socket, supervisor: Supervisor | None) -> Report:
    deadline, wait = time.monotonic() + usage.command.limits.seconds, _FIRST_LOOK
    poll, ends, look = select.poll(), os.pidfd_open(child), time.monotonic()
    for each in (ends, control.fileno(), *([supervisor.listener] if supervisor else [])):
        poll.register(each, select.POLLIN)
    while True:
        now = time.monotonic()
        left = deadline - now
        events = dict(poll.poll(max(0.0, min(look + wait - now, left)) * 1000))
        if supervisor and (event := events.get(supervisor.listener)):
            if event & select.POLLIN:
                supervisor.answer()
            else:
                poll.unregister(supervisor.listener)
        if ends in events:
            code = _exit_code(child)
            return Report(Ending.MEMORY) if usage.lacked_memory() else Report(Ending.EXITED, code)
        if control.fileno() in events:
            return Report(Ending.CANCELLED)
        if left <= 0:
            return Report(Ending.TIMEOUT)
        if time.monotonic() < look + wait:
            continue
        if excess := usage.excess():
            return Report(excess)
        _reap(child)
        look, wait = time.monotonic(), min(wait * 2, _LAST_LOOK)


def _exit_code(child: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return 128 - code if code < 0 else code


def _reap(child: int) -> None:
    """Reap orphans, but not the command itself, whose end its descriptor reports."""
    with suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and found.si_pid != child:
            os.waitpid(found.si_pid, os.WNOHANG)


def _is_isolated() -> bool:
    """Whether this process can signal only its own children, as the init of a namespace or in a scope."""
    if os.getpid() == 1:
        return os.getppid() == 0
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return True
    return False


def _end_all() -> None:
    """Kill everything this process may signal, repeatedly, until nothing is left."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with suppress(ChildProcessError):
        while True:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.0005)


def _end_descendants(tier: Tier) -> None:
    """Stop everything this process has started, since a stopped process can't fork, then kill it.

    If that takes too long in a container, this process kills itself, which ends the container.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    deadline, seen = time.monotonic() + _ENDING_SECONDS, set[int]()
    while found := set(processes(tier)):
        for each in found:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL if found <= seen else signal.SIGSTOP)
        seen |= found
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > deadline and tier is Tier.CONTAINER:
            os.kill(os.getpid(), signal.SIGKILL)


def main(requests: socket.socket, *, watched: bool) -> None:
    """Start a command for each request, with its input, output, errors and a socket to the gateway.

    `watched`: end once a command has killed its watcher.
    """
    signal.signal(signal.SIGCHLD, _on_child_exit if watched else signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_control(DUMPABLE, 0)
    gc.disable()  # a collection in a child would copy all the memory it shares with this process
    gc.freeze()
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 4)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _start_command(parse_command(request), descriptors)
        for each in descriptors:
            os.close(each)


def _on_child_exit(_signal: int, _frame: FrameType | None) -> None:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if os.WIFSIGNALED(found[1]):
                os._exit(1)


def _start_command(command: Command, descriptors: list[int]) -> NoReturn:
    control = socket.socket(fileno=descriptors[3])
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        set_control(DUMPABLE)
        if command.tier is Tier.NAMESPACES:
            namespaces.enter_namespaces()
            if init := os.fork():
                _clean_up(init, command, control, descriptors)
                os._exit(0)
        watch(command, (descriptors[0], descriptors[1], descriptors[2]), control)
    except (OSError, ValueError) as error:
        control.send(Report(Ending.REFUSED, problem=f"the jail cannot be built: {error}").packed())
    finally:
        os._exit(1)


def _clean_up(init: int, command: Command, control: socket.socket, descriptors: list[int]) -> None:
    """Delete its temporary folder, which is outside its root, once it has ended."""
    if command.temporary:
        control.close()
        for each in descriptors[:3]:
            os.close(each)
        os.waitpid(init, 0)
        shutil.rmtree(command.temporary, ignore_errors=True)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), watched="watched" in sys.argv[2:])
