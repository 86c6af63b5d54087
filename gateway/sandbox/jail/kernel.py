"""Calls that Python has no function for."""

import ctypes
import os
import struct
from functools import cache

_SET_PDEATHSIG, _SET_NO_NEW_PRIVS = 1, 38
_CAPABILITY_VERSION = 0x20080522
DUMPABLE = 4
"""For `set_control`: whether others of the same user may trace the process, and see its files under /proc."""
_CAPABILITIES, _CAPBSET_DROP = 64, 24
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
"""The same on all architectures."""
_HERE, _CLONE_TREE, _RECURSIVE, _EMPTY_PATH, _FROM_EMPTY_PATH, _DETACH = -100, 1, 0x8000, 0x1000, 4, 2


def release() -> tuple[int, ...]:
    """The kernel's version and its part, as 6, 1."""
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


@cache
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


def set_control(option: int, value: int = 1) -> None:
    """`prctl` with one number."""
    checked(libc().prctl(option, value, 0, 0, 0), f"prctl {option}")


def drop_bounds() -> None:
    """Give no rights of root's to programs that are started later either; fails only where there are none."""
    for capability in range(_CAPABILITIES):
        if libc().prctl(_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            return


def unshare(flags: int) -> None:
    """Leave namespaces of the parent's for new ones; that of processes holds for children."""
    checked(libc().unshare(flags), "unshare")


def mount(kind: bytes | None, target: str, flags: int, options: str = "") -> None:
    """Mount a file system without a device, or with None change the flags of the mount at `target`."""
    result = libc().mount(kind or b"none", os.fsencode(target), kind, ctypes.c_ulong(flags), options.encode() or None)
    checked(result, f"mount {target}")


def copied_tree(path: str, attributes: int) -> int:
    """A descriptor of a copy of all mounts at and below `path`, with these attributes more; attached nowhere yet."""
    flags = _CLONE_TREE | os.O_CLOEXEC | _RECURSIVE
    tree = system_call(_OPEN_TREE, ctypes.c_long(_HERE), os.fsencode(path), ctypes.c_long(flags))
    change = struct.pack("=QQQQ", attributes, 0, 0, 0)
    how = ctypes.c_long(_EMPTY_PATH | _RECURSIVE)
    system_call(_MOUNT_SETATTR, ctypes.c_long(tree), b"", how, change, ctypes.c_size_t(len(change)))
    return tree


def attach_tree(tree: int, target: str) -> None:
    """Mount such a copy, and close the descriptor."""
    at, flags = os.fsencode(target), ctypes.c_long(_FROM_EMPTY_PATH)
    system_call(_MOVE_MOUNT, ctypes.c_long(tree), b"", ctypes.c_long(_HERE), at, flags)
    os.close(tree)


def replace_root(folder: str) -> None:
    """Make `folder`, a mount, the root, and let go of the old one."""
    os.chdir(folder)
    system_call({"x86_64": 155, "aarch64": 41}[os.uname().machine], b".", b".")
    checked(libc().umount2(b".", _DETACH), "umount the old root")
    os.chdir("/")


def system_call(number: int, *arguments: object) -> int:
    """A call without a function in every C library."""
    return checked(int(libc().syscall(ctypes.c_long(number), *arguments)), f"system call {number}")
