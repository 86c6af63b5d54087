"""The system calls of a program in the workshop: any work on its own files and processes, nothing else."""

import errno
import platform

from gateway.sandbox.command import Tier
from gateway.sandbox.jail.kernel import DUMPABLE
from gateway.sandbox.jail.landlock import SIGNALS_SINCE, TRUNCATE_SINCE
from gateway.sandbox.jail.seccomp import (
    ALLOW,
    AND,
    ANY_BIT,
    ARGUMENTS,
    ASK,
    ATTRIBUTES,
    CHANGES,
    DONE,
    EQUAL,
    ERROR,
    LOAD,
    OUTSIDE,
    OWNERS_AND_PIPES,
    REFUSE,
    RETURN,
    TYPING,
    UNCOUNTED,
    Step,
    by_argument,
    install,
    install_with_listener,
    numbers,
    prologue,
)

# By name: the numbers on x86_64 and aarch64; - where there is none.
_REFUSED = {
    errno.EPERM: f"{OUTSIDE}, mlock 149 228, mlock2 325 284, mlockall 151 230",
    errno.EACCES: "socket 41 198",
    errno.ENOSYS: f"{UNCOUNTED}, shmdt 67 197, openat2 437 437",
    errno.EOPNOTSUPP: ATTRIBUTES,
    errno.EINVAL: "splice 275 76, tee 276 77, vmsplice 278 75, sendfile 40 71",  # a pipe's pages count for nobody
}
_SENDS = {"sendto 44 206": 3, "sendmsg 46 211": 2, "sendmmsg 307 269": 3}
"""Which argument is the flags."""
_CONNECTS = 0x20000000
_LISTENING = ", bind 49 200, listen 50 201"
_OWNERS = "chown 92 -, lchown 94 -, fchownat 260 54"
_TRUNCATE = "truncate 76 45"
_OTHER_SIGNALS = "rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, pidfd_send_signal 424 424"
_KILLS = "kill 62 129, tkill 200 130, tgkill 234 131"
_CONNECT = "connect 42 203"
_STARTS = "clone 56 220, fork 57 -, vfork 58 -"
SUPERVISED = f"{CHANGES}, {_KILLS}, {_CONNECT}, {_STARTS}"
"""The calls that are answered from outside if there are no namespaces."""
_ABOUT_ONESELF = (
    "prlimit64 302 261, sched_setaffinity 203 122, sched_setscheduler 144 119, sched_setparam 142 118, "
    "sched_setattr 314 274"
)
_PRIORITY = "setpriority 141 140"
_MODES = {
    "chmod 90 -": 1, "fchmod 91 52": 1, "fchmodat 268 53": 2, "fchmodat2 452 452": 2, "creat 85 -": 1,
    "mkdir 83 -": 1, "mkdirat 258 34": 2, "mknod 133 -": 1, "mknodat 259 33": 2,
}  # fmt: skip
"""Which argument is the mode."""
_STOP_SIGNALS = (19, 20, 21, 22)
_SIGNALS = {
    "kill 62 129, tkill 200 130, rt_sigqueueinfo 129 138, pidfd_send_signal 424 424": 1,
    "tgkill 234 131, rt_tgsigqueueinfo 297 240": 2,
}
"""Which argument is the signal."""
_OPENS = {"open 2 -": (1, 2), "openat 257 56": (2, 3)}
"""Which arguments are flags and mode."""
_SET_ID_BITS, _CREATES = 0o6000, 0o100 | 0o20000000
_STREAMS, _DATAGRAMS, _KIND_OF_SOCKET = 1, 2, 15
_INTERNET, _INTERNET6, _TCP = 2, 10, 6
_BUFFERS = (7, 8, 32, 33)
_UNIX = 1
_SHARED, _ANONYMOUS = 0x01, 0x20
_NEW_NAMESPACES, _THREAD, _SAME_FILES = 0x7E020080, 0x10000, 0x400


def restrict(tier: Tier, version: int, *, network: bool = False) -> int | None:
    """Refuse the rest permanently; see `rules`. Returns the descriptor for answers to supervised calls, if any."""
    program = rules(platform.machine(), tier, version, network=network)
    if tier is Tier.LANDLOCK:
        return install_with_listener(program)
    install(program)
    return None


def rules(machine: str, tier: Tier, version: int = SIGNALS_SINCE, *, network: bool = False) -> list[Step]:
    """The program on `machine`, a key of the table of architectures. `network`: allow TCP.

    Without namespaces it refuses to listen where others could connect. Beside Landlock alone, modes and times of files
    are supervised, connections, and what this `version` does not cover yet. In a container it refuses signals that make
    a process stand still, such as the one that watches over it.
    """
    steps, column = prologue(machine)
    steps += _masked(numbers("clone 56 220", column), 0, _NEW_NAMESPACES)
    steps += _tcp(column) if network else []
    steps += _buffers(column)
    refused = dict(_REFUSED)
    if tier is not Tier.NAMESPACES:
        refused[errno.EACCES] += _LISTENING
        for row, flags in _SENDS.items():
            steps += _masked(numbers(row, column), flags, _CONNECTS)
    for error, table in refused.items():
        for number in numbers(table, column).values():
            steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERROR | error)]
    steps += _other_processes(column)
    steps += _modes(column)
    steps += _beside_landlock(version, column, network=network) if tier is Tier.LANDLOCK else []
    for table, argument in _SIGNALS.items() if tier is Tier.CONTAINER else ():
        for number in numbers(table, column).values():
            steps += by_argument(number, argument, _STOP_SIGNALS, ALLOW, REFUSE)
    steps += by_argument(numbers("fcntl 72 25", column)["fcntl"], 1, OWNERS_AND_PIPES, ALLOW, REFUSE)
    steps += by_argument(numbers("ioctl 16 29", column)["ioctl"], 1, TYPING, ALLOW, REFUSE)
    return [*steps, ALLOW]


def _beside_landlock(version: int, column: int, *, network: bool) -> list[Step]:
    signals, truncate = version < SIGNALS_SINCE, version < TRUNCATE_SINCE
    refused = [_OWNERS, *[_OTHER_SIGNALS] * signals, *[_TRUNCATE] * truncate]
    supervised = [CHANGES, _STARTS, *[_KILLS] * signals, *[_CONNECT] * network]
    return [
        step
        for tables, verdict in ((refused, REFUSE), (supervised, ASK))
        for number in numbers(",".join(tables), column).values()
        for step in ((EQUAL, 0, 1, number), verdict)
    ]


def _other_processes(column: int) -> list[Step]:
    """Limits, scheduling and priority of the caller alone; no datagrams, which reach any socket by its path."""
    steps: list[Step] = []
    for number in numbers(_ABOUT_ONESELF, column).values():
        steps += by_argument(number, 0, [0], REFUSE, ALLOW)
    priority = numbers(_PRIORITY, column)["setpriority"]
    both = [(LOAD, 0, 0, ARGUMENTS), (EQUAL, 1, 0, 0), REFUSE, (LOAD, 0, 0, ARGUMENTS + 8), (EQUAL, 1, 0, 0), REFUSE]
    steps += [(EQUAL, 0, len(both) + 1, priority), *both, ALLOW]
    pair = numbers("socketpair 53 199", column)["socketpair"]
    kind = [
        (LOAD, 0, 0, ARGUMENTS), (EQUAL, 0, 3, _UNIX), (LOAD, 0, 0, ARGUMENTS + 8), (AND, 0, 0, _KIND_OF_SOCKET),
        (EQUAL, 0, 1, _DATAGRAMS), REFUSE, ALLOW,
    ]  # fmt: skip
    return [*steps, (EQUAL, 0, len(kind), pair), *kind]


def _tcp(column: int) -> list[Step]:
    """Sockets of TCP and no others."""
    socket = numbers("socket 41 198", column)["socket"]
    body = [
        (LOAD, 0, 0, ARGUMENTS), (EQUAL, 1, 0, _INTERNET), (EQUAL, 0, 6, _INTERNET6),
        (LOAD, 0, 0, ARGUMENTS + 8), (AND, 0, 0, _KIND_OF_SOCKET), (EQUAL, 0, 3, _STREAMS),
        (LOAD, 0, 0, ARGUMENTS + 16), (EQUAL, 2, 0, 0), (EQUAL, 1, 0, _TCP),
        (RETURN, 0, 0, ERROR | errno.EACCES), ALLOW,
    ]  # fmt: skip
    return [(EQUAL, 0, len(body), socket), *body]


def _buffers(column: int) -> list[Step]:
    """Buffers of sockets as large as the system makes them; no memory and no open files that nobody could count."""
    at = numbers("setsockopt 54 208, mmap 9 222, prctl 157 167, clone 56 220", column)
    steps = by_argument(at["setsockopt"], 2, _BUFFERS, ALLOW, REFUSE)
    steps += by_argument(at["prctl"], 0, [DUMPABLE], ALLOW, DONE)  # else it could hide what it has open
    shared = [(LOAD, 0, 0, ARGUMENTS + 24), (ANY_BIT, 0, 2, _ANONYMOUS), (ANY_BIT, 0, 1, _SHARED), REFUSE, ALLOW]
    apart = [(LOAD, 0, 0, ARGUMENTS), (ANY_BIT, 0, 2, _THREAD), (ANY_BIT, 1, 0, _SAME_FILES), REFUSE, (LOAD, 0, 0, 0)]
    return [*steps, (EQUAL, 0, len(shared), at["mmap"]), *shared, (EQUAL, 0, len(apart), at["clone"]), *apart]


def _modes(column: int) -> list[Step]:
    """No set-uid or set-gid bits, however they are set."""
    steps: list[Step] = []
    for row, argument in _MODES.items():
        steps += _masked(numbers(row, column), argument, _SET_ID_BITS)
    for row, (flags, mode) in _OPENS.items():
        for number in numbers(row, column).values():
            body = [
                (LOAD, 0, 0, ARGUMENTS + 8 * flags), (ANY_BIT, 0, 3, _CREATES),
                (LOAD, 0, 0, ARGUMENTS + 8 * mode), (ANY_BIT, 0, 1, _SET_ID_BITS), REFUSE, ALLOW,
            ]  # fmt: skip
            steps += [(EQUAL, 0, len(body), number), *body]
    return steps


def _masked(calls: dict[str, int], argument: int, bits: int) -> list[Step]:
    """Refuse calls with one of these bits; go on with the others."""
    steps: list[Step] = []
    for number in calls.values():
        steps += [
            (EQUAL, 0, 4, number), (LOAD, 0, 0, ARGUMENTS + 8 * argument), (ANY_BIT, 0, 1, bits), REFUSE,
            (LOAD, 0, 0, 0),
        ]  # fmt: skip
    return steps
