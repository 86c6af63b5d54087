"""The filter of commands, as the kernel would run it."""

import errno

import pytest

from gateway.sandbox.command import Tier
from gateway.sandbox.program_filter import rules
from tests.sandbox.test_seccomp import ALLOWED, ARM, DENIED, ME, X86, verdict

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
