import resource
import subprocess
import sys
from functools import cache

import pytest

TRIED = {(64, 128), (64, 1024), (128, 128), (5000, 5000), (64, 5000), (64, 64)}
ALLOW = """
import os, resource, sys
from gateway.app.start import allow_descriptors
for pair in sys.argv[1:]:
    if os.fork() == 0:
        os.dup2(1, 2)
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(map(int, pair.split())))
        allow_descriptors()
        sys.exit(str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    os.wait()
    print(end=chr(0), flush=True)
"""


@cache
def all_allowed() -> dict[tuple[int, int], str]:
    """What each process told that asked for more; they are forks of one, for it takes long to import the gateway."""
    possible = [pair for pair in TRIED if pair[1] <= resource.getrlimit(resource.RLIMIT_NOFILE)[1]]
    command = [sys.executable, "-c", ALLOW, *(f"{soft} {hard}" for soft, hard in possible)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return dict(zip(possible, told, strict=False))


def allowed(soft: int, hard: int) -> str:
    return all_allowed()[soft, hard]


@pytest.mark.parametrize(("soft", "hard", "then"), [(64, 128, 128), (64, 1024, 1024), (128, 128, 128)])
def test_the_soft_limit_is_raised_to_the_hard_one(soft: int, hard: int, then: int) -> None:
    assert allowed(soft, hard) == f"{then}\n"


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 5000, reason="the hard limit is low here")
def test_a_limit_that_is_high_is_left() -> None:
    assert allowed(5000, 5000) == "5000\n"
    assert allowed(64, 5000) == "4096\n"


def test_too_few_are_refused_with_the_number_needed() -> None:
    refused = allowed(64, 64)
    assert "OwnerMustAct: at most 64 files may be open at once, and the gateway needs 128: run" in refused
