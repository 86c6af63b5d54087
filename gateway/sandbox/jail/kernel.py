"""System calls that Python has no function for."""

import ctypes
import os
import struct
from functools import cache

SET_PDEATHSIG, SET_NO_NEW_PRIVS = 1, 38
_CAPABILITY_VERSION = 0x20080522
DUMPABLE = 4
"""For `set_control`: whether others of the same user may trace the process, and see its files under /proc."""
_CAPABILITIES, _CAPBSET_DROP = 64, 24
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
"""The same on all architectures."""
HERE, EMPTY_PATH = -100, 0x1000
_CLONE_TREE, _RECURSIVE, _FROM_EMPTY_PATH, _DETACH = 1, 0x8000, 4, 2


def release() -> tuple[int, ...]:
    """The kernel's version, as (6, 1)."""
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


@cache
def libc() -> ctypes.CDLL:
    """The C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """The result of a call; raises `OSError` if it failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def drop_privileges() -> None:
    """Give up root's rights, and the way back to them; until then, a process of root reads all of /proc."""
    checked(libc().capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)), "capset")
    checked(libc().prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def die_with(parent: int, signal: int) -> None:
    """Have the kernel send `signal` when the parent ends; a later change of rights would undo it."""
    checked(libc().prctl(SET_PDEATHSIG, signal, 0, 0, 0), "pdeathsig")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal)


def set_control(option: int, value: int = 1) -> None:
    """Call `prctl` with one number."""
    checked(libc().prctl(option, value, 0, 0, 0), f"prctl {option}")


def drop_bounds() -> None:
    """Keep programs that are started later from root's rights; fails only if there are none."""
    for capability in range(_CAPABILITIES):
        if libc().prctl(_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            return


def unshare(flags: int) -> None:
    """Enter new namespaces; a new one of processes applies to children only."""
    checked(libc().unshare(flags), "unshare")


def mount(kind: bytes | None, target: str, flags: int, options: str = "") -> None:
    """Mount a file system without a device, or with None change the flags of the mount at `target`."""
    result = libc().mount(kind or b"none", os.fsencode(target), kind, ctypes.c_ulong(flags), options.encode() or None)
    checked(result, f"mount {target}")


def copied_tree(path: str, attributes: int) -> int:
    """Copy all mounts at and below `path`, add these attributes, and return the copy's descriptor, not attached yet."""
    flags = _CLONE_TREE | os.O_CLOEXEC | _RECURSIVE
    tree = system_call(_OPEN_TREE, ctypes.c_long(HERE), os.fsencode(path), ctypes.c_long(flags))
    change = struct.pack("=QQQQ", attributes, 0, 0, 0)
    how = ctypes.c_long(EMPTY_PATH | _RECURSIVE)
    system_call(_MOUNT_SETATTR, ctypes.c_long(tree), b"", how, change, ctypes.c_size_t(len(change)))
    return tree


def attach_tree(tree: int, target: str) -> None:
    """Mount a copy of `copied_tree` and close its descriptor."""
    at, flags = os.fsencode(target), ctypes.c_long(_FROM_EMPTY_PATH)
    system_call(_MOVE_MOUNT, ctypes.c_long(tree), b"", ctypes.c_long(HERE), at, flags)
    os.close(tree)


def replace_root(folder: str) -> None:
    """Make `folder`, a mount, the root, and unmount the old one."""
    os.chdir(folder)
    system_call({"x86_64": 155, "aarch64": 41}[os.uname().machine], b".", b".")
    checked(libc().umount2(b".", _DETACH), "umount the old root")
    os.chdir("/")


def system_call(number: int, *arguments: object) -> int:
    """Make a call that not every C library has a function for; raises `OSError`."""
    return checked(int(libc().syscall(ctypes.c_long(number), *arguments)), f"system call {number}")
