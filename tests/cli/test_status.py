import json

import pytest

from tests.cli.conftest import Supaclaw

TOLD = {
    "version": "0.1.0",
    "started_at": "2026-11-26T21:15:07.123456Z",
    "channels": {"telegram": "open"},
    "queue": {},
    "today": {"calls": 3, "cost_usd": 0.020075999999999997},
    "vitals": {"memory": {"used": 106647552, "ceiling": 12638257152, "shedding": False}, "loop": {"p99_ms": 1.23456}},
    "x": ["a", 1],
}


@pytest.fixture(autouse=True)
def _at_work(running: dict[str, str]) -> None:
    running["GET /api/status"] = json.dumps(TOLD)


def test_what_the_gateway_tells_is_shown_to_people(supaclaw: Supaclaw) -> None:
    assert supaclaw("status").out.splitlines() == [
        "version: 0.1.0",
        "started: Thu 2026-11-26 21:15 UTC",
        "channels:",
        "  telegram: open",
        "today:",
        "  calls: 3",
        "  cost: $0.0201",
        "vitals:",
        "  memory:",
        "    used: 107 MB",
        "    ceiling: 13 GB",
        "  loop:",
        "    p99 ms: 1.235",
        "x: a, 1",
    ]


def test_what_the_gateway_tells_is_passed_on_to_programs(supaclaw: Supaclaw) -> None:
    assert supaclaw("status", "--json").json == TOLD
