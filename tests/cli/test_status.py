import json

import pytest

from tests.cli.conftest import Supaclaw

TOLD = {"version": "0.1.0", "model": "guide", "channels": {"telegram": "open"}, "queue": {}, "x": ["a", 1]}


@pytest.fixture(autouse=True)
def _at_work(running: dict[str, str]) -> None:
    running["GET /api/status"] = json.dumps(TOLD)


def test_what_the_gateway_tells_is_shown_to_people(supaclaw: Supaclaw) -> None:
    assert supaclaw("status").out.splitlines() == [
        "version: 0.1.0",
        "model: guide",
        "channels:",
        "  telegram: open",
        "x: a, 1",
    ]


def test_what_the_gateway_tells_is_passed_on_to_programs(supaclaw: Supaclaw) -> None:
    assert supaclaw("status", "--json").json == TOLD
