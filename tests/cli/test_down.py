import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Supaclaw

GATEWAY = """
import signal, sys
from pathlib import Path
from gateway.config.data.instance import hold_instance
stubborn = sys.argv[2] == "stubborn"
signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else lambda *_: sys.exit(0))
with hold_instance(Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def gateway(data: Path, manner: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", GATEWAY, str(data), manner], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_running_gateway_is_asked_to_end_and_waited_for(supaclaw: Supaclaw, place: Path) -> None:
    with gateway(place / "data", "polite") as process:
        done = supaclaw("down")

        assert (done.code, done.out) == (0, "stopped\n")
        assert process.wait() == 0


def test_a_gateway_that_goes_on_working_is_told(supaclaw: Supaclaw, place: Path) -> None:
    with gateway(place / "data", "stubborn") as process:
        done = supaclaw("down", "--timeout", "0")

        assert done.code == 1
        assert f"(pid {process.pid}) is still running; wait, or end it with `kill -9 {process.pid}`" in done.err


@pytest.mark.parametrize(
    ("error", "code", "output"),
    [(ProcessLookupError, 0, "stopped\n"), (PermissionError, 1, "runs as another user; stop it as that user\n")],
)
def test_a_gateway_that_has_just_ended_or_is_another_users(
    supaclaw: Supaclaw, place: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError], code: int, output: str
) -> None:
    def refuse(_pid: int, _signal: int) -> None:
        raise error

    with gateway(place / "data", "polite"):
        monkeypatch.setattr("gateway.cli.process.control.os.kill", refuse)
        done = supaclaw("down")
        monkeypatch.undo()

    assert (done.code, (done.out + done.err).endswith(output)) == (code, True)


def test_when_nothing_runs_it_says_so(supaclaw: Supaclaw, place: Path) -> None:
    assert supaclaw("down").out == "nothing was running\n"

    (place / "data").mkdir()

    assert supaclaw("down").out == "nothing was running\n"
