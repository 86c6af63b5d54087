import os
from pathlib import Path

import pytest

from gateway.app.checks import CHECKS
from gateway.config.failpoints import Step
from tests.cli.conftest import Supaclaw


@pytest.fixture(autouse=True)
def _on_any_free_port(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    assert place.exists()
    monkeypatch.setenv("SUPACLAW_PORT", "0")
    monkeypatch.setenv("COLUMNS", "80")


def test_a_fresh_place_has_no_failures(supaclaw: Supaclaw) -> None:
    done = supaclaw("doctor", "--json")

    found = {finding["check"]: finding["level"] for finding in done.json}
    machine = {name: found[name] for name in ("disk", "memory", "clock", "jail", "exec")}
    assert done.code == 0
    assert found == {
        "python": "ok",
        "packages": "ok",
        "config": "ok",
        "folders": "ok",
        "keys": "ok",
        "port": "ok",
        "database": "ok",
        "model": "warn",
        "channels": "warn",
        **machine,
    }
    assert found.keys() | {"failpoint", "secrets", "tools", "update", "workspace"} == CHECKS.keys()


def test_it_leaves_no_trace(supaclaw: Supaclaw, place: Path) -> None:
    supaclaw("doctor")

    assert os.listdir(place) == []


def test_a_wrong_config_is_told_and_the_rest_is_still_examined(supaclaw: Supaclaw, place: Path) -> None:
    (place / "config.json").write_text('{"web": {"prot": 1}, "budgets": {"day_usd": -1}}')

    done = supaclaw("doctor")

    assert done.code == 1
    assert done.out.count("fail  config") == 2
    assert "did you mean web.port?" in done.out
    assert "ok    port      127.0.0.1:0 is free" in done.out


def test_what_is_found_fits_into_eighty_columns_and_is_counted(supaclaw: Supaclaw, place: Path) -> None:
    (place / "config.json").write_text('{"channels": {"telegarm": {}}}')

    lines = supaclaw("doctor").out.splitlines()

    assert max(len(line) for line in lines if str(place) not in line) <= 80
    assert "fail  channels  channels.telegarm: unknown channel; did you mean telegram?" in lines
    assert f"{'':16}→ fix config.json" in lines
    assert lines[-1].startswith("1 failed, ")


def test_no_password_is_shown(supaclaw: Supaclaw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", "postgresql://me:hushhush@127.0.0.1:1/none")

    done = supaclaw("doctor")

    assert "fail  database" in done.out
    assert "hushhush" not in done.out + done.err + supaclaw("doctor", "--json").out


def test_failpoints_are_listed(supaclaw: Supaclaw) -> None:
    listed = supaclaw("doctor", "--failpoints").out
    assert all(step.value in listed for step in Step)
    assert supaclaw("doctor", "--failpoints", "--json").json == {step.value: step.about for step in Step}
