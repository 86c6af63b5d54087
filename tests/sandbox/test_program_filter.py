"""The filter of commands, as the kernel would run it."""

import pytest

from gateway.sandbox.program_filter import rules
from tests.sandbox.test_seccomp import ALLOWED, ARM, DENIED, ME, X86, verdict

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
        assert verdict(rules(name, own_files_only=False, stops_none=True), audit, number, *arguments) == expected
        assert verdict(rules(name, own_files_only=False), audit, number, *arguments) == ALLOWED
