import io
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import structlog

from gateway.logs import SecretMask, logging_to
from tests.cli.conftest import Supaclaw

ONE, OTHER = "0b0c1111-1111-4111-8111-111111111111", "0b0d1111-1111-4111-8111-111111111111"
WILL_HEAR = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("gateway", run_name="__main__", alter_sys=True)
"""
"""`python -m gateway`, though whoever started us in the background made us deaf to Ctrl-C."""
EARLIER = date(2026, 1, 1)


def today() -> date:
    """Tests may run over midnight."""
    return datetime.now(UTC).date()


def said(place: Path, event: str, day: date | None = None, level: str = "info", **facts: object) -> None:
    """The gateway logged something."""
    with logging_to(place / "data" / "logs", SecretMask(), io.StringIO(), today=lambda: day or today()):
        getattr(structlog.get_logger(), level)(event, **facts)


def test_before_the_first_start_it_says_so(supaclaw: Supaclaw) -> None:
    done = supaclaw("logs")

    assert done.code == 1
    assert done.err.endswith("yet; `supaclaw up` starts the gateway\n")
    assert done.out == ""


def test_the_gateways_own_log_is_shown_readably(supaclaw: Supaclaw, place: Path) -> None:
    said(place, "gateway.ready", port=8787)

    (line,) = supaclaw("logs").out.splitlines()

    assert line.split()[1:] == ["[info", "]", "gateway.ready", "port=8787"]


def test_a_session_is_shown_by_the_beginning_of_its_id(supaclaw: Supaclaw, place: Path) -> None:
    said(place, "turn.answered", session_id=ONE, task_id="7")
    said(place, "turn.other", session_id=OTHER)

    done = supaclaw("logs", "0b0c")

    assert "turn.answered" in done.out
    assert "task_id=7" in done.out
    assert "turn.other" not in done.out
    assert "session_id" not in done.out
    assert supaclaw("logs", "0b0").err.startswith("supaclaw: 0b0 matches 2 sessions with a log; ")
    assert supaclaw("logs", "ff").err.endswith("`supaclaw sessions` lists them\n")


def test_json_is_the_lines_as_they_are_kept_and_the_text_of_torn_ones(supaclaw: Supaclaw, place: Path) -> None:
    said(place, "one", session_id=ONE)
    with (place / "data" / "logs" / "gateway.log").open("a") as file:
        file.write('{"event": "to\n')

    done = supaclaw("logs", "--json")

    assert [json.loads(line)["event"] for line in done.out.splitlines()] == ["one", '{"event": "to']
    assert '{"event": "to' in supaclaw("logs").out


def test_only_what_is_bad_enough_and_only_the_last_lines(supaclaw: Supaclaw, place: Path) -> None:
    for level in ("info", "warning", "error", "info"):
        said(place, f"of.{level}", level=level)

    shown = [line.split()[-1] for line in supaclaw("logs", "--level", "warning").out.splitlines()]

    assert shown == ["of.warning", "of.error"]
    assert "of.error" in supaclaw("logs", "--level", "warning", "-n", "1").out
    assert "of.warning" not in supaclaw("logs", "--level", "warning", "-n", "1").out
    assert supaclaw("logs", "-n", "0").out == ""


def test_the_latest_day_is_shown_and_said_when_it_is_not_today(supaclaw: Supaclaw, place: Path) -> None:
    said(place, "long.ago", EARLIER, session_id=ONE)

    done = supaclaw("logs", ONE)

    assert "long.ago" in done.out
    assert done.err == "nothing was logged today; this is 2026-01-01 (UTC)\n"


def test_a_day_can_be_chosen_and_one_without_a_log_names_those_that_have_one(supaclaw: Supaclaw, place: Path) -> None:
    said(place, "long.ago", EARLIER)
    said(place, "just.now")

    assert "long.ago" in supaclaw("logs", "--day", "2026-01-01").out
    done = supaclaw("logs", "--day", "2026-01-02")
    assert done.code == 1
    assert done.err == (
        f"supaclaw: nothing was logged on 2026-01-02 (UTC); there are logs from 2026-01-01 to {today()}\n"
    )
    assert supaclaw("logs", "--day", "yesterday").code == 2


def test_a_day_that_is_over_cannot_be_followed(supaclaw: Supaclaw, place: Path) -> None:
    said(place, "long.ago", EARLIER)

    assert supaclaw("logs", "--follow", "--day", "2026-01-01").err.endswith("leave out --day\n")


def test_following_shows_what_is_there_and_what_comes_until_it_is_interrupted(place: Path) -> None:
    said(place, "before")
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", WILL_HEAR, "logs", "--follow", "--json"]
    with subprocess.Popen(command, cwd=place, env=environ, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["event"] == "before"
        said(place, "after")
        assert json.loads(following.stdout.readline())["event"] == "after"
        following.send_signal(signal.SIGINT)
        rest = following.stdout.read()

    assert following.returncode == 0
    assert rest == ""


@pytest.mark.parametrize("day", [None, EARLIER])
def test_no_secret_is_shown_that_the_file_does_not_hold(supaclaw: Supaclaw, place: Path, day: date | None) -> None:
    said(place, "failed", day, why="Bearer abcdef123456")

    assert "abcdef123456" not in supaclaw("logs").out + supaclaw("logs", "--json").out
