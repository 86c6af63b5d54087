import os
import socket
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from gateway.app.checks.machine import (
    check_clock,
    check_exec,
    check_jail,
    check_memory,
    check_port,
    check_python,
    kernel_clock,
)
from gateway.config.data.instance import hold_instance
from tests.app.checks.contexts import Examine, told
from tests.sandbox.tiers import confines

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_an_old_python_fails(examine: Examine) -> None:
    (finding,) = examine(partial(check_python, version=(3, 10, 9)))

    assert (finding.level, finding.text, finding.fix) == ("fail", "Python 3.10.9", "install Python 3.11 or newer")
    assert told(examine(partial(check_python, version=(3, 11, 0)))) == [("ok", "Python 3.11.0")]


@pytest.mark.parametrize(("megabytes", "level"), [(200, "fail"), (400, "warn"), (600, "ok")])
def test_too_little_memory_for_the_gateway_is_told(examine: Examine, megabytes: int, level: str) -> None:
    assert told(examine(partial(check_memory, available=megabytes * 2**20))) == [
        (level, f"{megabytes} MB on this machine or in its container")
    ]


def test_a_clock_in_the_past_fails(examine: Examine) -> None:
    (finding,) = examine(partial(check_clock, now=datetime(1970, 1, 2, tzinfo=UTC)))

    assert (finding.level, finding.text) == ("fail", "1970-01-02 00:00 UTC is in the past")


@pytest.mark.parametrize(("state", "level"), [(0, "ok"), (5, "warn"), (None, "ok")])
def test_a_clock_that_nothing_keeps_right_is_warned_about(examine: Examine, state: int | None, level: str) -> None:
    (finding,) = examine(partial(check_clock, now=NOW, kernel=lambda: state))

    assert finding.level == level
    assert finding.text.startswith("2026-11-21 12:00 UTC")


def test_asking_the_kernel_for_its_clock_changes_nothing() -> None:
    assert kernel_clock() in {None, -1, 0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("version", "filters", "level", "has"),
    [
        (7, True, "ok", "Landlock 7, seccomp"),
        (2, True, "warn", "Landlock 2, seccomp"),
        (0, True, "warn", "no Landlock, seccomp"),
        (7, False, "warn", "Landlock 7, no seccomp"),
        (0, False, "warn", "no Landlock, no seccomp"),
    ],
)
def test_what_the_jail_of_files_is_made_of_is_told(
    examine: Examine, version: int, filters: bool, level: str, has: str
) -> None:
    (finding,) = examine(partial(check_jail, version=lambda: version, filters=lambda: filters))

    assert (finding.level, bool(finding.fix)) == (level, level == "warn")
    assert finding.text.startswith(f"{has}: ")


def test_a_port_another_program_has_fails(examine: Examine) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])

        (finding,) = examine(check_port, SUPACLAW_PORT=port)

    assert finding.level == "fail"
    assert finding.text.startswith(f"cannot listen on 127.0.0.1:{port}: Address already in use")
    assert finding.fix == "set web.port or SUPACLAW_PORT"


def test_an_address_open_to_other_machines_fails_as_the_start_would(examine: Examine) -> None:
    (finding,) = examine(check_port, SUPACLAW_HOST="0.0.0.0")

    assert (finding.level, finding.fix) == ("fail", "use 127.0.0.1 and a tunnel or proxy in front")


def test_a_free_port_and_one_our_own_gateway_has_are_fine(examine: Examine, tmp_path: Path, free_port: int) -> None:
    assert told(examine(check_port, SUPACLAW_PORT=str(free_port))) == [("ok", f"127.0.0.1:{free_port} is free")]

    with hold_instance(tmp_path / "data"):
        ((level, text),) = told(examine(check_port))
    assert (level, text) == ("ok", f"the gateway (pid {os.getpid()}) is using it")


@pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")
def test_how_commands_are_confined_is_told(examine: Examine) -> None:
    [(level, text)] = told(examine(check_exec))

    assert (level, text.partition(": ")[0]) == ("ok", "commands of the agent run in a jail")
    assert text.partition(": ")[2].startswith(
        ("namespaces, Landlock and seccomp", "Landlock, seccomp and a supervisor")
    )


def test_without_its_service_the_agent_runs_no_commands(examine: Examine, tmp_path: Path) -> None:
    [(level, text)] = told(examine(check_exec, SUPACLAW_WORKSHOP=str(tmp_path / "none.sock")))

    assert level == "warn"
    assert text.startswith("the agent runs no commands: the service of commands at")
