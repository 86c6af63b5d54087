import resource
import subprocess
import sys

import pytest

ALLOW = """
import resource, sys
from gateway.app.descriptors import allow_descriptors
soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allow_descriptors()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def allowed(soft: int, hard: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", ALLOW, str(soft), str(hard)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("soft", "hard", "then"), [(64, 128, 128), (64, 1024, 1024), (128, 128, 128)])
def test_the_soft_limit_is_raised_to_the_hard_one(soft: int, hard: int, then: int) -> None:
    assert allowed(soft, hard).stdout == f"{then}\n"


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 5000, reason="the hard limit is low here")
def test_a_limit_that_is_high_is_left() -> None:
    assert allowed(5000, 5000).stdout == "5000\n"
    assert allowed(64, 5000).stdout == "4096\n"


def test_too_few_are_refused_with_the_number_needed() -> None:
    refused = allowed(64, 64)
    assert refused.returncode != 0
    assert "OwnerMustAct: at most 64 files may be open at once, and the gateway needs 128: run" in refused.stderr
