"""seccomp: which system calls a process may make from now on, as a program for the kernel's packet filter."""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from gateway.sandbox.jail.kernel import SET_PDEATHSIG, checked, libc, system_call

Step: TypeAlias = tuple[int, int, int, int]

LOAD, EQUAL, AT_LEAST, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ERROR = 0x00050000
ALLOW: Step = (RETURN, 0, 0, 0x7FFF0000)
REFUSE: Step = (RETURN, 0, 0, ERROR | errno.EPERM)
DONE: Step = (RETURN, 0, 0, ERROR)
"""The call returns 0, and nothing has happened."""
ASK: Step = (RETURN, 0, 0, 0x7FC00000)
"""Another process answers the call."""
_SECCOMP = "seccomp 317 277"
_LISTENER, _WAIT_KILLABLE = 8, 32
_KILL = 0x80000000
_GET_SECCOMP, _SET_SECCOMP, _MODE_FILTER = 21, 22, 2
ARGUMENTS = 16
_NUMBER, _ARCHITECTURE = 0, 4
_CLONE_THREAD = 0x10000
_NEWEST = 470
"""The newest call that was examined; newer ones do not exist for a confined process."""

# By name: the numbers on x86_64 and aarch64; - where there is none.
OUTSIDE = """
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, pidfd_getfd 438 438,
process_madvise 440 440, process_mrelease 448 448, ioprio_set 251 30, mount 165 40, umount2 166 39, pivot_root 155 41,
chroot 161 51, unshare 272 97, setns 308 268, open_tree 428 428, move_mount 429 429, fsopen 430 430, fsconfig 431 431,
fsmount 432 432, fspick 433 433, mount_setattr 442 442, quotactl_fd 443 443, open_tree_attr 467 467, keyctl 250 219,
add_key 248 217, request_key 249 218, bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, init_module 175 105,
finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294, reboot 169 142,
swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60, personality 135 92, settimeofday 164 170,
clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266, sethostname 170 161, setdomainname 171 162,
iopl 172 -, ioperm 173 -, modify_ldt 154 -, syslog 103 116, vhangup 153 58, name_to_handle_at 303 264,
open_by_handle_at 304 265, inotify_init 253 -, inotify_init1 294 26, fanotify_init 300 262
"""
"""Other processes, mounts, keys, the machine, and calls that tell names of files elsewhere."""
UNCOUNTED = """
io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427, io_setup 206 0, shmget 29 194,
shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semctl 66 191, semtimedop 220 192, msgget 68 186,
msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181, memfd_create 319 279,
memfd_secret 447 447
"""
"""Memory that no limit counts, and calls whose arguments a filter cannot see."""
ATTRIBUTES = """
fallocate 285 47, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, setxattrat 463 463, removexattr 197 14,
lremovexattr 198 15, fremovexattr 199 16, removexattrat 466 466, file_setattr 469 469, getxattr 191 8,
lgetxattr 192 9, fgetxattr 193 10, getxattrat 464 464, listxattr 194 11, llistxattr 195 12, flistxattr 196 13,
listxattrat 465 465, file_getattr 468 468
"""
"""Disk space that no limit counts, and attributes, which survive, and which can be read by path alone."""
CHANGES = """
chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, utime 132 -, utimes 235 -, futimesat 261 -,
utimensat 280 88
"""
"""Changes of modes and times, which Landlock does not see."""
_REFUSED = f"""{OUTSIDE}, {UNCOUNTED}, {ATTRIBUTES}, {CHANGES},
pidfd_open 434 434, pidfd_send_signal 424 424, tkill 200 130, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240,
setpriority 141 140, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54, truncate 76 45, socket 41 198,
socketpair 53 199, fork 57 -, vfork 58 -, execve 59 221, execveat 322 281
"""
"""These, signals, owners and lengths of files, sockets, and programs."""
_BY_ARGUMENT = """
clone 56 220, kill 62 129, tgkill 234 131, prlimit64 302 261, sched_setaffinity 203 122, sched_setscheduler 144 119,
sched_setparam 142 118, sched_setattr 314 274, fcntl 72 25, ioctl 16 29, prctl 157 167
"""
_CLONE3 = 435
_MACHINES = {"x86_64": (1, 0xC000003E), "aarch64": (2, 0xC00000B7)}
"""The column in the tables, and the kernel's number of the architecture."""
OWNERS_AND_PIPES = (8, 10, 15, 1026, 1031)
"""fcntl: the process that gets signals of a file, notices of a folder, the size of a pipe."""
TYPING = (0x5412, 0x541C, 0x8901, 0x8902)
"""ioctl: input for a terminal, and the process that gets signals of a socket."""


def supported() -> bool:
    """Whether the kernel filters calls, and their numbers are known."""
    with suppress(OSError, AttributeError):
        known = os.uname().sysname == "Linux" and platform.machine() in _MACHINES
        return known and int(libc().prctl(_GET_SECCOMP, 0, 0, 0, 0)) >= 0
    return False


def restrict() -> None:
    """Refuse to this process, permanently: sockets, programs, children, other processes and their limits, and changes
    of files that are not open. Threads, and signals to itself, stay allowed."""
    install(rules(platform.machine(), os.getpid()))


def install(steps: Sequence[Step]) -> None:
    """Have the kernel run this program at each call from now on; permanent."""
    header, _held = _packed(steps)
    checked(libc().prctl(_SET_SECCOMP, _MODE_FILTER, header, 0, 0), "seccomp")


def install_with_listener(steps: Sequence[Step]) -> int:
    """The same; returns the descriptor by which calls that end in `ASK` are answered."""
    header, _held = _packed(steps)
    number = numbers(_SECCOMP, _MACHINES[platform.machine()][0])["seccomp"]
    with suppress(OSError):  # from Linux 5.19 on, signals wait until a call is answered
        return system_call(number, ctypes.c_long(1), ctypes.c_long(_LISTENER | _WAIT_KILLABLE), header)
    return system_call(number, ctypes.c_long(1), ctypes.c_long(_LISTENER), header)


def _packed(steps: Sequence[Step]) -> tuple[bytes, object]:
    """A program in the kernel's form, and the buffer that must live as long."""
    program = b"".join(struct.pack("=HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(program, len(program))
    return struct.pack("@HP", len(program) // 8, ctypes.addressof(held)), held


def rules(machine: str, me: int) -> list[Step]:
    """The program for process `me` on `machine`, a key of the table."""
    steps, column = prologue(machine)
    at = numbers(_BY_ARGUMENT, column)
    steps += [
        (EQUAL, 0, 4, at["clone"]), (LOAD, 0, 0, ARGUMENTS), (ANY_BIT, 1, 0, _CLONE_THREAD), REFUSE, ALLOW,
    ]  # fmt: skip
    for number in numbers(_REFUSED, column).values():
        steps += [(EQUAL, 0, 1, number), REFUSE]
    for name in ("kill", "tgkill"):
        steps += by_argument(at[name], 0, [me], REFUSE, ALLOW)
    for name in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
        steps += by_argument(at[name], 0, [0], REFUSE, ALLOW)
    steps += by_argument(at["fcntl"], 1, OWNERS_AND_PIPES, ALLOW, REFUSE)
    steps += by_argument(at["ioctl"], 1, TYPING, ALLOW, REFUSE)
    steps += by_argument(at["prctl"], 0, [SET_PDEATHSIG], ALLOW, REFUSE)
    return [*steps, ALLOW]


def prologue(machine: str) -> tuple[list[Step], int]:
    """The beginning of every program, which checks architecture and age of a call; and the column of the tables."""
    column, audit = _MACHINES[machine]
    steps: list[Step] = [
        (LOAD, 0, 0, _ARCHITECTURE), (EQUAL, 1, 0, audit), (RETURN, 0, 0, _KILL), (LOAD, 0, 0, _NUMBER),
        (AT_LEAST, 0, 1, _NEWEST + 1), (RETURN, 0, 0, ERROR | errno.ENOSYS),
        # The C library falls back to clone, whose flags can be seen.
        (EQUAL, 0, 1, _CLONE3), (RETURN, 0, 0, ERROR | errno.ENOSYS),
    ]  # fmt: skip
    return steps, column


def by_argument(number: int, argument: int, values: Sequence[int], other: Step, one: Step) -> list[Step]:
    """Decide a call by its argument: `one` if it is among `values`."""
    tests = [(EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [(EQUAL, 0, len(values) + 3, number), (LOAD, 0, 0, ARGUMENTS + 8 * argument), *tests, other, one]


def numbers(table: str, column: int) -> dict[str, int]:
    """The calls of a table that exist on this architecture."""
    rows = (entry.split() for entry in table.split(","))
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def named(table: str, machine: str) -> dict[int, str]:
    """The names by number, for a key of the table of architectures."""
    return {number: name for name, number in numbers(table, _MACHINES[machine][0]).items()}
