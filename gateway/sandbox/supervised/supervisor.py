"""Calls that no filter can weigh: the kernel holds each of them until it is answered here.

What a call points to may change meanwhile. So it is made from here, on what was looked at, and never let through with a
pointer.
"""

import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from gateway.sandbox.program_filter import SUPERVISED
from gateway.sandbox.seccomp import named

_RECEIVE, _SEND, _IS_WAITING = 0xC0502100, 0xC0182101, 0x40082102
_NOTICE, _REPLY, _LET_THROUGH = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI"), 1
_MAX_PATH = 4096

Handler: TypeAlias = "Callable[[Call], Callable[[], None] | None]"
"""Makes a call, and returns what is left to do once the caller goes on. Raises `OSError`, or `Harmless`."""


class Harmless(Exception):
    """The call concerns its caller alone, and has no pointer: it may be made."""


@dataclass(frozen=True, slots=True)
class Call:
    """One that waits; `thread` makes it."""

    ident: int
    thread: int
    name: str
    arguments: tuple[int, ...]
    listener: int

    def number(self, place: int) -> int:
        """An argument that may be negative: a descriptor, or the number of a process."""
        return ctypes.c_int(self.arguments[place] & 0xFFFFFFFF).value

    def memory(self, place: int, size: int) -> bytes:
        """What an argument points to, as much of it as there is; raises `OSError`."""
        address = self.arguments[place]
        if not 0 < address < 2**63:
            raise OSError(errno.EFAULT, "no address")
        memory = os.open(f"/proc/{self.thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(memory, size, address)
        finally:
            os.close(memory)

    def path(self, place: int) -> str:
        """The path that an argument points to; its own folder of /proc is named so that it is the same here."""
        text, end, _ = self.memory(place, _MAX_PATH).partition(b"\0")
        if not end:
            raise OSError(errno.ENAMETOOLONG, "no end")
        own = b"/proc/self/"
        return os.fsdecode(f"/proc/{self.thread}/".encode() + text[len(own) :] if text.startswith(own) else text)

    def check(self) -> None:
        """Raise `FileNotFoundError` if it waits no more, and `thread` may be another by now."""
        fcntl.ioctl(self.listener, _IS_WAITING, struct.pack("=Q", self.ident))


class Supervisor:
    """Of one command, whose filter has this `listener`."""

    def __init__(self, listener: int, handlers: Mapping[str, Handler]) -> None:
        self.listener, self._handlers = listener, handlers
        self._names = named(SUPERVISED, platform.machine())

    def answer(self) -> None:
        """Answer one call, once there is one; those of processes that are gone need no answer."""
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
