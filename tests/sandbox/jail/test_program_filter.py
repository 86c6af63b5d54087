"""The filter of commands, as the kernel would run it."""

import errno

import pytest

from gateway.sandbox.command import Tier
from gateway.sandbox.jail.program_filter import rules
from tests.sandbox.jail.test_seccomp import ALLOWED, ARM, DENIED, ME, SIGCHLD, X86, verdict

SUPERVISED = 0x7FC00000
NO_ACCESS = 0x50000 | errno.EACCES
KILL, STOP, TERMINAL_STOP, TERMINATE = 9, 19, 20, 15
SIGNALS = [(62, 129, 1), (200, 130, 1), (234, 131, 2), (129, 138, 1), (297, 240, 2), (424, 424, 1)]


@pytest.mark.parametrize(("x86", "arm", "place"), SIGNALS)
@pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])
def test_nothing_is_made_to_stand_still_in_a_container(
    machine: tuple[str, int], x86: int, arm: int, place: int
) -> None:
    name, audit = machine
    number = x86 if machine == X86 else arm
    for signal, expected in ((KILL, ALLOWED), (TERMINATE, ALLOWED), (STOP, DENIED), (TERMINAL_STOP, DENIED)):
        arguments = [ME, ME, 0]
        arguments[place] = signal
        assert verdict(rules(name, Tier.CONTAINER), audit, number, *arguments) == expected
        assert verdict(rules(name, Tier.NAMESPACES), audit, number, *arguments) == ALLOWED


@pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])
def test_a_command_with_network_listens_only_where_no_other_command_is(machine: tuple[str, int]) -> None:
    name, audit = machine
    for x86, arm in ((49, 200), (50, 201)):
        number = x86 if machine == X86 else arm
        assert verdict(rules(name, Tier.CONTAINER, network=True), audit, number) == NO_ACCESS
        assert verdict(rules(name, Tier.NAMESPACES, network=True), audit, number) == ALLOWED


CHANGES = [(90, None), (91, 52), (268, 53), (452, 452), (132, None), (235, None), (261, None), (280, 88)]
KILLS = [(62, 129), (200, 130), (234, 131)]
QUEUED = [(129, 138), (297, 240), (424, 424)]


@pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])
@pytest.mark.parametrize("version", [1, 2, 3, 5, 6, 7])
def test_what_landlock_does_not_cover_is_supervised_or_refused(machine: tuple[str, int], version: int) -> None:
    name, audit = machine
    program = rules(name, Tier.LANDLOCK, version)
    for calls, expected in (
        (CHANGES, SUPERVISED),
        (KILLS, SUPERVISED if version < 6 else ALLOWED),
        (QUEUED, DENIED if version < 6 else ALLOWED),
        ([(76, 45)], DENIED if version < 3 else ALLOWED),
        ([(92, None), (94, None), (260, 54)], DENIED),
    ):
        for x86, arm in calls:
            number = x86 if machine == X86 else arm
            if number is not None:
                assert verdict(program, audit, number) == expected
                assert verdict(rules(name, Tier.NAMESPACES), audit, number) == ALLOWED


def test_a_set_id_bit_is_refused_before_anybody_is_asked() -> None:
    program = rules(X86[0], Tier.LANDLOCK)
    for number, place in ((90, 1), (91, 1), (268, 2), (452, 2)):
        arguments = [0, 0, 0, 0]
        arguments[place] = 0o4755
        assert verdict(program, X86[1], number, *arguments) == DENIED


PRIVATE, SHARED, CHECKED, ANONYMOUS = 2, 1, 3, 0x20
THREAD, FILES = 0x10900, 0x400
UNIX, TIPC, STREAMS, DATAGRAMS = 1, 30, 1, 2
UNREADABLE, INVALID, DONE = 0x50000 | errno.EOPNOTSUPP, 0x50000 | errno.EINVAL, 0x50000


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize(
    ("x86", "arm", "arguments", "answer"),
    [
        (9, 222, (0, 4096, 3, PRIVATE | ANONYMOUS), ALLOWED),
        (9, 222, (0, 4096, 3, SHARED), ALLOWED),  # of a file
        (9, 222, (0, 4096, 3, SHARED | ANONYMOUS), DENIED),
        (9, 222, (0, 4096, 3, CHECKED | ANONYMOUS), DENIED),
        (9, 222, (0, 4096, 3, SHARED | ANONYMOUS | 0x40000), DENIED),  # in huge pages
        (54, 208, (3, 1, 2), ALLOWED),
        (54, 208, (3, 1, 7), DENIED),
        (54, 208, (3, 1, 8), DENIED),
        (54, 208, (3, 1, 32), DENIED),
        (54, 208, (3, 1, 33), DENIED),
        (53, 199, (UNIX, STREAMS), ALLOWED),
        (53, 199, (UNIX, DATAGRAMS | 0x800), DENIED),
        (53, 199, (TIPC, STREAMS), DENIED),
        (56, 220, (THREAD,), DENIED),
        (275, 76, (), INVALID),
        (276, 77, (), INVALID),
        (278, 75, (), INVALID),
        (40, 71, (), INVALID),
        (157, 167, (4, 0), DONE),
        (157, 167, (15, 0), ALLOWED),
        *((x86, arm, (), UNREADABLE) for x86, arm in zip(range(191, 197), range(8, 14), strict=True)),
        *((number, number, (), UNREADABLE) for number in (464, 465, 468)),
    ],
)
@pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])
def test_what_nobody_could_count_is_refused(
    machine: tuple[str, int], x86: int, arm: int, arguments: tuple[int, ...], answer: int, tier: Tier
) -> None:
    name, audit = machine
    for network in (False, True):
        program = rules(name, tier, network=network)
        assert verdict(program, audit, x86 if machine == X86 else arm, *arguments) == answer


@pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])
def test_beside_landlock_alone_each_start_is_counted(machine: tuple[str, int]) -> None:
    name, audit = machine
    clone = 56 if machine == X86 else 220
    for flags in (SIGCHLD, THREAD | FILES):
        assert verdict(rules(name, Tier.LANDLOCK), audit, clone, flags) == SUPERVISED
        assert verdict(rules(name, Tier.NAMESPACES), audit, clone, flags) == ALLOWED
    assert verdict(rules(name, Tier.LANDLOCK), audit, clone, 0x10000000 | SIGCHLD) == DENIED
