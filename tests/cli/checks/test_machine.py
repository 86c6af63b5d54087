import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from gateway.cli.checks.machine import check_clock, check_memory, check_open_files, check_port, kernel_clock
from gateway.config.instance import hold_instance
from tests.cli.checks.patients import Examine, put, told

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MIB = 2**20


def container(tmp_path: Path, megabytes: int) -> str:
    put(tmp_path / "root" / "proc" / "self" / "cgroup", "0::/ours\n")
    put(tmp_path / "root" / "sys" / "fs" / "cgroup" / "ours" / "memory.max", f"{megabytes * MIB}\n")
    return str(tmp_path / "root")


@pytest.mark.parametrize(("megabytes", "level"), [(200, "fail"), (400, "warn"), (600, "ok")])
def test_a_container_without_memory_for_the_gateway_is_told(
    examine: Examine, tmp_path: Path, megabytes: int, level: str
) -> None:
    assert told(examine(check_memory, root=container(tmp_path, megabytes))) == [
        (level, f"{megabytes} MB on this machine or in its container")
    ]


def test_a_ceiling_above_what_there_is_is_warned_about(examine: Examine, tmp_path: Path) -> None:
    (finding,) = examine(check_memory, '{"limits": {"memory_mb": 900}}', root=container(tmp_path, 600))

    assert (finding.level, finding.fix) == ("warn", "set limits.memory_mb to 300 or less")


@contextmanager
def open_files(limit: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_few_open_files_are_warned_about(examine: Examine) -> None:
    with open_files(500):
        (finding,) = examine(check_open_files)
    assert (finding.level, finding.text) == ("warn", "only 500 may be open at once")

    with open_files(2048):
        assert told(examine(check_open_files)) == [("ok", "2,048 may be open at once")]


def test_a_clock_in_the_past_fails(examine: Examine) -> None:
    (finding,) = examine(partial(check_clock, now=datetime(1970, 1, 2, tzinfo=UTC)))

    assert (finding.level, finding.text) == ("fail", "the clock says 1970-01-02")


@pytest.mark.parametrize(("state", "level"), [(0, "ok"), (5, "warn"), (None, "ok")])
def test_a_clock_that_nothing_keeps_right_is_warned_about(examine: Examine, state: int | None, level: str) -> None:
    (finding,) = examine(partial(check_clock, now=NOW, kernel=lambda: state))

    assert finding.level == level
    assert finding.text.startswith("2026-11-21 12:00 UTC")


def test_missing_time_zones_are_warned_about(examine: Examine) -> None:
    findings = examine(partial(check_clock, now=NOW, kernel=lambda: 0, zone="Nowhere/Land"))

    assert [finding.level for finding in findings] == ["ok", "warn"]
    assert findings[1].fix == "install tzdata, from the system or PyPI"


def test_asking_the_kernel_for_its_clock_changes_nothing() -> None:
    assert kernel_clock() in {None, 0, 1, 2, 3, 4, 5}


def test_a_port_another_program_has_fails(examine: Examine) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])

        (finding,) = examine(check_port, SUPACLAW_PORT=port)

    assert (finding.level, finding.text) == ("fail", f"cannot listen on 127.0.0.1:{port}: Address already in use")
    assert finding.fix == "set web.port or SUPACLAW_PORT"


def test_an_address_open_to_other_machines_fails_as_the_start_would(examine: Examine) -> None:
    (finding,) = examine(check_port, SUPACLAW_HOST="0.0.0.0")

    assert (finding.level, finding.fix) == ("fail", "use 127.0.0.1 and a tunnel or proxy in front")


def test_a_free_port_and_one_our_own_gateway_has_are_fine(examine: Examine, tmp_path: Path, free_port: int) -> None:
    assert told(examine(check_port, SUPACLAW_PORT=str(free_port))) == [("ok", f"127.0.0.1:{free_port} is free")]

    with hold_instance(tmp_path / "data"):
        ((level, text),) = told(examine(check_port))
    assert (level, f"the gateway runs (pid {os.getpid()})" in text) == ("ok", True)
