import signal
import subprocess
import sys

import pytest

from gateway.config.failpoints import Failpoints, Step
from gateway.domain.errors import ConfigError

REACH_TWICE = """
import sys
from gateway.config.failpoints import Failpoints, Step
failpoints = Failpoints(sys.argv[1])
for number in (1, 2):
    failpoints.reach(Step.TURN_CLAIMED)
    failpoints.reach(Step.TOOL_RAN)
    print(number, flush=True)
"""


def run(armed: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", REACH_TWICE, armed], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_process_dies_at_the_armed_step() -> None:
    assert run("turn.claimed") == (-signal.SIGKILL, "")


def test_the_process_dies_at_the_nth_time_only() -> None:
    assert run("turn.claimed:2") == (-signal.SIGKILL, "1\n")


def test_before_the_nth_time_nobody_dies() -> None:
    assert run("turn.claimed:3") == (0, "1\n2\n")


def test_a_step_that_is_never_reached_kills_nobody() -> None:
    assert run("outbox.sent") == (0, "1\n2\n")


def test_unarmed_nothing_happens() -> None:
    failpoints = Failpoints(None)

    for step in Step:
        failpoints.reach(step)


def test_every_step_says_when_it_is() -> None:
    assert all(step.about for step in Step)
    assert str(Step.MODEL_REPLIED) == "model.replied"


def test_an_unknown_step_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"^SUPACLAW_FAIL: unknown step turn\.claim; did you mean turn\.claimed\?$"):
        Failpoints("turn.claim")


@pytest.mark.parametrize("armed", ["turn.claimed:0", "turn.claimed:x"])
def test_a_count_that_is_none_is_refused(armed: str) -> None:
    with pytest.raises(ConfigError, match="n from 1"):
        Failpoints(armed)
