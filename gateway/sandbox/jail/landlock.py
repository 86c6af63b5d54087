"""Landlock: the files that a process may reach from now on. Rights that the kernel doesn't know yet are left out."""

import ctypes
import os
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from enum import IntFlag

from gateway.sandbox.jail.kernel import checked, libc

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""The same on all architectures."""
_PATH_BENEATH, _NET_PORT = 1, 2
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""The number of rights to files in the early versions."""
_TCP, _CONNECT = 0b11, 0b10
TRUNCATE_SINCE, SIGNALS_SINCE = 3, 6
"""The versions from which these are confined."""
_SCOPES = 0b11
"""Abstract Unix sockets, and signals."""


class FileAccess(IntFlag):
    """Rights beneath a path."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15

    READ = READ_FILE | READ_DIR
    RUN = READ | EXECUTE
    DEVICE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
    KEEP_FILES = READ | WRITE_FILE | MAKE_REG | REMOVE_FILE | TRUNCATE
    """Plain files only: no links, pipes, sockets, folders."""
    WORK = RUN | KEEP_FILES | REMOVE_DIR | MAKE_DIR | MAKE_SOCK | MAKE_FIFO | MAKE_SYM | REFER
    """Everything but devices."""
    CLEAN = RUN | REMOVE_DIR | REMOVE_FILE


_OF_FILES = FileAccess.DEVICE | FileAccess.EXECUTE


def abi() -> int:
    """The version of Landlock that the kernel offers; 0 for none."""
    with suppress(OSError, AttributeError):
        # Elsewhere the number is another call's.
        if os.uname().sysname == "Linux":
            return max(0, int(libc().syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), 1)))
    return 0


def restrict(rules: Mapping[str, FileAccess], version: int | None = None, *, port: int | None = None) -> None:
    """Deny all files but these, permanently; also TCP, and signals to others, if the kernel can. Skips missing paths.

    `version`: act as an older kernel would. TCP may connect to `port` of any address; 0 doesn't restrict it.

    Doesn't cover calls that need no open file (chmod, stat), nor UDP, Unix and netlink sockets: seccomp does.
    """
    version = abi() if version is None else version
    handled = (1 << _RIGHTS.get(version, 16)) - 1
    fields = (handled, _TCP if version >= 4 and port != 0 else 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call(_CREATE_RULESET, struct.pack("=QQQ", *fields)[:size], ctypes.c_size_t(size), 0)
    for path, access in rules.items():
        with suppress(FileNotFoundError):
            _allow(ruleset, path, access & handled)
    if version >= 4 and port:
        _call(_ADD_RULE, ruleset, _NET_PORT, struct.pack("=QQ", _CONNECT, port), 0)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def scope_signals() -> None:
    """Restrict signals of this process and its children to each other; needs version 6."""
    ruleset = _call(_CREATE_RULESET, struct.pack("=QQQ", 0, 0, _SCOPES), ctypes.c_size_t(24), 0)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _OF_FILES
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", access, descriptor), 0)
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: object) -> int:
    return checked(libc().syscall(ctypes.c_long(number), *arguments), "landlock")
