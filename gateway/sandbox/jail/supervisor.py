"""Calls that no filter can decide: the kernel holds each of them until it is answered here. They change modes and
times of files, send signals, start processes and threads, and connect to the gateway's proxy.

The memory that a call points to may change meanwhile. So the call is made from here, on what was read, and never let
through with a pointer."""

import ctypes
import errno
import fcntl
import os
import platform
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

from gateway.sandbox.jail.kernel import EMPTY_PATH, HERE, checked, libc, release
from gateway.sandbox.jail.landlock import FileAccess
from gateway.sandbox.jail.program_filter import SUPERVISED
from gateway.sandbox.jail.seccomp import named

_RECEIVE, _SEND, _IS_WAITING = 0xC0502100, 0xC0182101, 0x40082102
_NOTICE, _REPLY, _LET_THROUGH = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI"), 1
_MAX_PATH = 4096

Handler: TypeAlias = "Callable[[Call], Callable[[], None] | None]"
"""Makes a call; may return a function to run once the caller continues. Raises `OSError`, or `Harmless`."""


class Harmless(Exception):
    """The call affects its caller alone and has no pointer: the kernel may make it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A waiting call, made by `thread`."""

    ident: int
    thread: int
    name: str
    arguments: tuple[int, ...]
    listener: int

    def number(self, place: int) -> int:
        """An argument that may be negative: a descriptor, or the number of a process."""
        return ctypes.c_int(self.arguments[place] & 0xFFFFFFFF).value

    def memory(self, place: int, size: int) -> bytes:
        """Up to `size` bytes that an argument points to; raises `OSError`."""
        address = self.arguments[place]
        if not 0 < address < 2**63:
            raise OSError(errno.EFAULT, "no address")
        with open(f"/proc/{self.thread}/mem", "rb", 0) as memory:
            return os.pread(memory.fileno(), size, address)

    def path(self, place: int) -> str:
        """The path that an argument points to, with /proc/self rewritten to the caller's folder."""
        text, end, _ = self.memory(place, _MAX_PATH).partition(b"\0")
        if not end:
            raise OSError(errno.ENAMETOOLONG, "no end")
        own = b"/proc/self/"
        return os.fsdecode(f"/proc/{self.thread}/".encode() + text[len(own) :] if text.startswith(own) else text)

    def check(self) -> None:
        """Raise `FileNotFoundError` if the call no longer waits: `thread` may be another process by now."""
        fcntl.ioctl(self.listener, _IS_WAITING, struct.pack("=Q", self.ident))


class Supervisor:
    """Answers the calls of one command, whose filter has this `listener`."""

    def __init__(self, listener: int, handlers: Mapping[str, Handler]) -> None:
        self.listener, self._handlers = listener, handlers
        self._names = named(SUPERVISED, platform.machine())

    def answer(self) -> None:
        """Wait for one call and answer it; calls of processes that have ended need no answer."""
        with suppress(FileNotFoundError):
            notice = bytearray(_NOTICE.size)
            fcntl.ioctl(self.listener, _RECEIVE, notice)
            ident, thread, _, number, _, _, *arguments = _NOTICE.unpack(notice)
            call = Call(ident, thread, self._names[number], (*arguments,), self.listener)
            error, flags, rest = 0, 0, None
            try:
                rest = self._handlers[call.name](call)
            except Harmless:
                flags = _LET_THROUGH
            except OSError as failure:
                error = failure.errno or errno.EPERM
            fcntl.ioctl(self.listener, _SEND, _REPLY.pack(ident, 0, -error, flags))
            if rest is not None:
                rest()


_NO_FOLLOW = 0x100
_TIMES = struct.Struct("=4q")
_MODE_BITS = 0o1777


def change_handlers(access: Mapping[str, FileAccess]) -> dict[str, Handler]:
    """Handlers of calls that change modes and times. `access`: the rules of Landlock for the command."""
    roots = tuple(os.path.realpath(path) for path, rights in access.items() if FileAccess.WORK in rights)

    def modes(folder: int | None, path: int | None, mode: int, flags: int | None = None) -> Handler:
        def handle(call: Call) -> None:
            with _changed_file(call, roots, folder, path, flags) as file:
                os.chmod(file, call.arguments[mode] & _MODE_BITS)

        return handle

    def times(folder: int | None, path: int, value: int, flags: int | None = None) -> Handler:
        def handle(call: Call) -> None:
            new = _times(call, value)
            with _changed_file(call, roots, folder, path, flags) as file:
                checked(libc().utimensat(HERE, file.encode(), new, 0), "utimensat")

        return handle

    return {
        "chmod": modes(None, 0, 1),
        "fchmod": modes(0, None, 1),
        "fchmodat": modes(0, 1, 2),
        "fchmodat2": modes(0, 1, 2, 3),
        "utime": times(None, 0, 1),
        "utimes": times(None, 0, 1),
        "futimesat": times(0, 1, 2),
        "utimensat": times(0, 1, 2, 3),
    }


@contextmanager
def _changed_file(
    call: Call, roots: tuple[str, ...], folder: int | None, path: int | None, flags: int | None
) -> Iterator[str]:
    """The file that a call is about, by a descriptor of ours; takes the places of its arguments. Raises `OSError`."""
    descriptor = _open_path(call, folder, path, 0 if flags is None else call.arguments[flags])
    try:
        call.check()
        own = f"/proc/self/fd/{descriptor}"
        # No file can be moved below these from elsewhere, so it was below them all the time.
        place = os.readlink(own)
        if not any(place == root or place.startswith(f"{root}/") for root in roots):
            raise PermissionError(errno.EPERM, "not where it may write")
        yield own
    finally:
        os.close(descriptor)


def _open_path(call: Call, folder: int | None, path: int | None, flags: int) -> int:
    number = HERE if folder is None else call.number(folder)
    base = f"/proc/{call.thread}/cwd" if number == HERE else f"/proc/{call.thread}/fd/{number}"
    if path is None or call.arguments[path] == 0:  # of an open file
        return os.open(base, os.O_PATH | os.O_CLOEXEC)
    name = call.path(path)
    if not name:
        if not flags & EMPTY_PATH:
            raise FileNotFoundError(errno.ENOENT, "no path")
        return os.open(base, os.O_PATH | os.O_CLOEXEC)
    how = os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if flags & _NO_FOLLOW else 0)
    if name.startswith("/"):
        return os.open(name, how)
    start = os.open(base, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        return os.open(name, how, dir_fd=start)
    finally:
        os.close(start)


def _times(call: Call, place: int) -> bytes | None:
    """The times as `utimensat` takes them; None for the current time."""
    if call.arguments[place] == 0:
        return None
    if call.name == "utime":
        accessed, modified = struct.unpack("=2q", _whole_memory(call, place, 16))
        return _TIMES.pack(accessed, 0, modified, 0)
    found = _whole_memory(call, place, _TIMES.size)
    if call.name == "utimensat":
        return found
    accessed, fraction, modified, other = _TIMES.unpack(found)
    if not (0 <= fraction < 1_000_000 and 0 <= other < 1_000_000):
        raise OSError(errno.EINVAL, "no time")
    return _TIMES.pack(accessed, fraction * 1000, modified, other * 1000)


def _whole_memory(call: Call, place: int, size: int) -> bytes:
    found = call.memory(place, size)
    if len(found) < size:
        raise OSError(errno.EFAULT, "no memory there")
    return found


_PUT_DESCRIPTOR, _AT_NUMBER = 0x40182103, 1
_CONNECT_SECONDS = 1.0
"""Short, so that a command that connects too often doesn't make us wait."""
_BUFFER_BYTES = 64 * 1024
"""Of a socket: memory that no process accounts for."""


def connection_handlers(address: tuple[str, int]) -> dict[str, Handler]:
    """The handler of `connect`: it replaces the socket by one that is connected to this address."""
    host, port = address
    named = struct.pack("@H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host)

    def connect(call: Call) -> None:
        if call.memory(1, len(named)) != named:
            raise PermissionError(errno.EACCES, "another address")
        flags = _socket_flags(call)
        with socket.socket() as own:
            for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                own.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)
            own.settimeout(_CONNECT_SECONDS)
            try:
                own.connect(address)
            except TimeoutError as error:
                raise OSError(errno.ETIMEDOUT, "connect") from error
            own.setblocking(not flags & os.O_NONBLOCK)
            put = (call.ident, _AT_NUMBER, own.fileno(), call.number(0), flags & os.O_CLOEXEC)
            fcntl.ioctl(call.listener, _PUT_DESCRIPTOR, struct.pack("=QIIiI", *put))

    return {"connect": connect}


def _socket_flags(call: Call) -> int:
    """The flags of the call's socket; raises `OSError` if it isn't one."""
    place = f"/proc/{call.thread}/fd/{call.number(0)}"
    if not os.readlink(place).startswith("socket:"):
        raise OSError(errno.ENOTSOCK, "not a socket")
    with open(place.replace("/fd/", "/fdinfo/")) as file:
        flags = next(int(line.split()[1], 8) for line in file if line.startswith("flags:"))
    call.check()
    return flags


_UNINTERRUPTED_SINCE = (5, 19)


def signal_handlers() -> dict[str, Handler]:
    """Handlers of calls that send signals. For the process that all these processes descend from."""
    return {"kill": _kill, "tkill": _kill_thread, "tgkill": _kill_thread}


def _kill(call: Call) -> Callable[[], None] | None:
    target, number = call.number(0), call.number(1)
    own = process_of(call.thread)
    call.check()
    if target == own:
        raise Harmless
    processes = [target] if target > 0 else list(_group_members(target, own))
    sent = [each for each in processes if each != own and _send_signal(each, number)]
    if target == -1 or own not in processes:
        if not sent:
            raise OSError(errno.EPERM if os.path.exists(f"/proc/{target}") else errno.ESRCH, "none of its processes")
        return None
    if release() < _UNINTERRUPTED_SINCE:  # a signal would begin the waiting call again
        return lambda: _send_late(own, number)
    _send_signal(own, number)
    return None


def _kill_thread(call: Call) -> None:
    """Allow the own thread, which waits and so keeps its number; refuse all others."""
    own = call.thread if call.name == "tkill" else process_of(call.thread)
    call.check()
    if call.number(0) == own:
        raise Harmless
    raise PermissionError(errno.EPERM, "another's thread")


def _group_members(target: int, own: int) -> Iterator[int]:
    """The processes of a group, or all for -1."""
    group = group_of(own) if target == 0 else -target
    yield from (each for each in set(descendants(os.getpid())) if target == -1 or group_of(each) == group)


def _send_signal(process: int, number: int) -> bool:
    """Send it to one of our processes; returns whether it arrived. A descriptor is safe from reused numbers."""
    try:
        descriptor = os.pidfd_open(process)
    except OSError:
        return False
    try:
        if process not in set(descendants(os.getpid())):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _send_late(process: int, number: int) -> None:
    with suppress(OSError):
        _send_signal(process, number)


def start_handlers(count: Callable[[], int], most: int) -> dict[str, Handler]:
    """Handlers of calls that start processes and threads: no more than `most` at once. `count`: those that run now."""
    running = most

    def start(_: Call) -> None:
        nonlocal running
        running = running + 1 if running < most else count() + 1
        if running > most:
            raise BlockingIOError(errno.EAGAIN, "too many")
        raise Harmless

    return dict.fromkeys(("clone", "fork", "vfork"), start)


def descendants(process: int) -> Iterator[int]:
    """Yield its children, their children and so on; new ones may be missed."""
    waiting = [process]
    while waiting:
        with suppress(OSError):
            parent = waiting.pop()
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children") as file:
                    found = [int(each) for each in file.read().split()]
                waiting += found
                yield from found


def process_of(thread: int) -> int:
    """The process of a thread; raises `OSError`."""
    with open(f"/proc/{thread}/status", "rb") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(b"Tgid:"))


def group_of(process: int) -> int:
    """The number of its group; 0 if the process has ended."""
    with suppress(OSError):
        return os.getpgid(process)
    return 0
