"""Calls that Python has no function for."""

import ctypes
import os
import struct

_SET_PDEATHSIG, _SET_NO_NEW_PRIVS = 1, 38
_CAPABILITY_VERSION = 0x20080522


def libc() -> ctypes.CDLL:
    """The C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """`result`; raises `OSError` for a call that failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def drop_privileges() -> None:
    """Give up root's rights, and the way back to them; as root, /proc tells everything until this is done."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    checked(libc().capset(header, bytes(24)), "capset")
    checked(libc().prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def die_with(parent: int, signal: int) -> None:
    """Have the kernel send `signal` when the parent is gone; a change of rights would undo it."""
    checked(libc().prctl(_SET_PDEATHSIG, signal, 0, 0, 0), "pdeathsig")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal)
