import os
import socket
from pathlib import Path

import pytest

from gateway.cli.checks import Finding, Level, Patient, check_data, check_disk, check_model, check_port, check_python
from gateway.config.environment import Environment
from gateway.config.failpoints import Step
from gateway.config.instance import hold_instance
from gateway.config.load import parse
from tests.cli.conftest import Supaclaw


def patient(text: str = "{}", **environ: str) -> Patient:
    return Patient(Environment.read(environ), {"OLLAMA_HOST": "127.0.0.1:1", **environ}, parse(text, environ))


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_fresh_place_has_no_failures(supaclaw: Supaclaw, monkeypatch: pytest.MonkeyPatch, free_port: int) -> None:
    monkeypatch.setenv("SUPACLAW_PORT", str(free_port))

    done = supaclaw("doctor", "--json")

    found = {finding["check"]: finding["level"] for finding in done.json}
    assert done.code == 0
    assert found == {
        "python": "ok",
        "config": "ok",
        "failpoint": "ok",
        "data": "ok",
        "disk": found["disk"],
        "port": "ok",
        "database": "ok",
        "model": "warn",
        "channels": "warn",
    }


def test_a_wrong_config_is_told_and_the_rest_is_still_examined(
    supaclaw: Supaclaw, place: Path, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setenv("SUPACLAW_PORT", str(free_port))
    (place / "config.json").write_text('{"web": {"prot": 1}, "budgets": {"day_usd": -1}}')

    done = supaclaw("doctor")

    assert done.code == 1
    assert done.out.count("fail  config") == 2
    assert "did you mean web.port?" in done.out
    assert "→ mend config.json" in done.out
    assert f"port      127.0.0.1:{free_port} is free" in done.out


def test_a_channel_that_cannot_work_is_told(supaclaw: Supaclaw, place: Path) -> None:
    (place / "config.json").write_text('{"channels": {"telegarm": {}}}')

    assert "did you mean telegram?" in supaclaw("doctor").out


def test_configured_channels_are_named(supaclaw: Supaclaw, place: Path) -> None:
    (place / "config.json").write_text('{"channels": {"telegram": {"token": "123:abc", "allow": ["1"]}}}')

    assert "ok    channels  telegram" in supaclaw("doctor").out


def test_an_armed_failpoint_is_warned_about_and_a_wrong_one_fails(
    supaclaw: Supaclaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPACLAW_FAIL", "turn.claimed")
    assert "warn  failpoint the gateway will kill itself at turn.claimed" in supaclaw("doctor").out

    monkeypatch.setenv("SUPACLAW_FAIL", "turn.claim")
    assert "fail  failpoint" in supaclaw("doctor").out


def test_failpoints_are_listed(supaclaw: Supaclaw) -> None:
    assert all(step.value in supaclaw("doctor", "--failpoints").out for step in Step)
    assert supaclaw("doctor", "--failpoints", "--json").json == {step.value: step.about for step in Step}


def test_an_old_python_fails() -> None:
    assert check_python((3, 10)) == Finding(Level.FAIL, "python", "Python 3.10", "install Python 3.11 or newer")


def test_a_data_folder_others_can_read_is_warned_about(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert check_data(patient(SUPACLAW_DATA=str(tmp_path))).level is Level.WARN

    tmp_path.chmod(0o700)
    assert check_data(patient(SUPACLAW_DATA=str(tmp_path))).level is Level.OK


def test_a_data_folder_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert check_data(patient(SUPACLAW_DATA=str(tmp_path / "file"))).level is Level.FAIL


@pytest.mark.parametrize(
    ("free", "level"), [(10 * 1024**3, Level.OK), (500 * 1024**2, Level.WARN), (10 * 1024**2, Level.FAIL)]
)
def test_a_disk_that_fills_up_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: Level) -> None:
    usage = type("Usage", (), {"free": free})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)

    assert check_disk(patient(SUPACLAW_DATA=str(tmp_path))).level is level


def test_a_port_another_program_has_fails(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])

        finding = check_port(patient(SUPACLAW_PORT=port, SUPACLAW_DATA=str(tmp_path)))

    assert finding.level is Level.FAIL
    assert finding.fix == "set SUPACLAW_PORT to another port"


def test_a_port_our_own_gateway_has_is_fine(tmp_path: Path) -> None:
    with hold_instance(tmp_path):
        finding = check_port(patient(SUPACLAW_DATA=str(tmp_path)))

    assert finding.level is Level.OK
    assert f"the gateway runs (pid {os.getpid()})" in finding.text


def test_a_model_without_its_key_is_warned_about() -> None:
    finding = check_model(patient('{"models": {"primary": "openai/gpt-5.6"}}'))

    assert finding.level is Level.WARN
    assert finding.fix.startswith("set OPENAI_API_KEY; a key is made at https://")


def test_a_model_with_its_key_is_fine_and_the_key_is_not_shown() -> None:
    chosen = check_model(patient(OPENAI_API_KEY="sk-hush"))
    named = check_model(patient('{"models": {"primary": "openai/gpt-5.6"}}', OPENAI_API_KEY="sk-hush"))

    assert chosen.level is named.level is Level.OK
    assert "OPENAI_API_KEY" in chosen.text
    assert "hush" not in chosen.text + named.text
