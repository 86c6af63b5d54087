"""The filter as the kernel would run it, for machines that no test runs on as well."""

import errno
import struct
from collections.abc import Sequence

import pytest

from gateway.sandbox.jail.seccomp import Step, rules

ME = 4242
CLONE_THREAD, SIGCHLD = 0x10000, 17
ALLOWED, DENIED, ABSENT, KILLED = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000
X86, ARM = ("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)


def verdict(program: Sequence[Step], audit: int, number: int, *arguments: int) -> int:
    """What the packet filter answers to a call."""
    six = (*arguments, *[0] * (6 - len(arguments)))
    call = struct.pack("=IIQ6Q", number, audit, 0, *six)
    loaded, at = 0, 0
    while True:
        code, true, false, operand = program[at]
        at += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("=I", call, operand)
            case 0x15:
                at += true if loaded == operand else false
            case 0x35:
                at += true if loaded >= operand else false
            case 0x45:
                at += true if loaded & operand else false
            case 0x54:
                loaded &= operand
            case 0x06:
                return operand
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")


@pytest.mark.parametrize(
    ("machine", "number", "arguments", "answer"),
    [
        (X86, 257, (), ALLOWED),  # openat
        (ARM, 56, (), ALLOWED),
        (X86, 59, (), DENIED),  # execve
        (ARM, 221, (), DENIED),
        (X86, 41, (2, 2), DENIED),  # socket
        (ARM, 198, (1, 1), DENIED),
        (X86, 62, (ME, 9), ALLOWED),  # kill
        (X86, 62, (1, 9), DENIED),
        (X86, 62, (2**32 - 1, 9), DENIED),
        (ARM, 129, (ME, 9), ALLOWED),
        (ARM, 129, (1, 9), DENIED),
        (X86, 56, (CLONE_THREAD,), ALLOWED),  # clone
        (X86, 56, (SIGCHLD,), DENIED),
        (ARM, 220, (SIGCHLD,), DENIED),
        (X86, 435, (), ABSENT),  # clone3
        (ARM, 435, (), ABSENT),
        (X86, 302, (0, 7), ALLOWED),  # prlimit64
        (X86, 302, (1, 7), DENIED),
        (ARM, 261, (1, 7), DENIED),
        (X86, 72, (3, 3), ALLOWED),  # fcntl: F_GETFL
        (X86, 72, (3, 8), DENIED),  # F_SETOWN
        (ARM, 25, (3, 1031), DENIED),  # F_SETPIPE_SZ
        (X86, 16, (0, 0x5401), ALLOWED),  # ioctl: TCGETS
        (X86, 16, (0, 0x5412), DENIED),  # TIOCSTI
        (X86, 157, (4, 0), ALLOWED),  # prctl: PR_SET_DUMPABLE
        (X86, 157, (1, 0), DENIED),  # PR_SET_PDEATHSIG
        (X86, 500, (), ABSENT),
        (X86, 0x40000000 | 41, (), ABSENT),  # x32
        (ARM, 500, (), ABSENT),
    ],
)
def test_each_call_is_answered(machine: tuple[str, int], number: int, arguments: tuple[int, ...], answer: int) -> None:
    name, audit = machine
    assert verdict(rules(name, ME), audit, number, *arguments) == answer


def test_a_call_in_the_numbers_of_another_machine_kills() -> None:
    assert verdict(rules("x86_64", ME), 0x40000003, 1) == KILLED


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_kernel_takes_a_program_of_this_length(machine: str) -> None:
    assert len(rules(machine, ME)) < 4096
