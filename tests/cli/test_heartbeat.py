import json
from collections.abc import Iterator

import pytest

from gateway.cli.agent import heartbeat
from tests.cli.conftest import Supaclaw

AT = "2026-11-21T14:30:00Z"


def told(outcome: str, text: str = "") -> str:
    return json.dumps({"at": AT, "outcome": outcome, "text": text})


@pytest.fixture
def went(running: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the gateway says when it is asked again, look after look."""
    went: list[str] = []
    running["POST /api/heartbeat"] = told("running")
    running["GET /api/heartbeat"] = told("running")

    def sleep(_seconds: float) -> None:
        running["GET /api/heartbeat"] = went.pop(0)

    monkeypatch.setattr(heartbeat.time, "sleep", sleep)
    yield went
    assert went == []


@pytest.mark.parametrize(
    ("outcome", "text", "line", "code"),
    [
        ("idle", "nothing to do", "idle: nothing to do\n", 0),
        ("skipped", "no model is connected", "skipped: no model is connected\n", 0),
        ("ok", "", "ok\n", 0),
        ("told", "The rent\nis due.", "The rent is due.\n", 0),
        ("failed", "no model answered", "failed: no model answered\n", 1),
    ],
)
def test_it_says_in_a_line_how_it_went(
    supaclaw: Supaclaw, running: dict[str, str], outcome: str, text: str, line: str, code: int
) -> None:
    running["POST /api/heartbeat"] = told(outcome, text)
    done = supaclaw("heartbeat")

    assert (done.out, done.code, done.err) == (line, code, "")


def test_one_that_asks_a_model_is_waited_for(supaclaw: Supaclaw, went: list[str]) -> None:
    went += [told("running"), told("told", "The rent is due.")]

    assert supaclaw("heartbeat").out == "The rent is due.\n"


def test_patience_has_an_end(supaclaw: Supaclaw, went: list[str]) -> None:
    done = supaclaw("heartbeat", "--timeout", "0")

    assert done.code == 1
    assert "still running" in done.err


def test_programs_get_json(supaclaw: Supaclaw, running: dict[str, str]) -> None:
    running["POST /api/heartbeat"] = told("failed", "no model answered")
    done = supaclaw("heartbeat", "--json")

    assert done.json == {"at": "2026-11-21T14:30:00+00:00", "outcome": "failed", "text": "no model answered"}
    assert done.code == 1
