from pathlib import Path

import pytest

from gateway.config.environment import Environment
from gateway.domain.errors import ConfigError


def test_everything_has_a_default_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    environment = Environment.read({})

    assert environment == Environment(tmp_path / "config.json", tmp_path / "data", tmp_path / "data" / "workspace")


def test_every_variable_is_read() -> None:
    environment = Environment.read(
        {
            "SUPACLAW_CONFIG": "/c.json",
            "SUPACLAW_DATA": "/d",
            "SUPACLAW_WORKSPACE": "/w",
            "SUPACLAW_DATABASE_URL": "postgres://u:hush@h/db",
            "SUPACLAW_HOST": "::1",
            "SUPACLAW_PORT": "9000",
            "SUPACLAW_FAIL": "turn.claimed",
            "SUPACLAW_PUBLIC_URL": "https://claw.example.org",
            "SUPACLAW_SIGN_IN": "docker compose exec claw supaclaw web",
            "NOTIFY_SOCKET": "@notify",
        }
    )

    assert environment == Environment(
        Path("/c.json"),
        Path("/d"),
        Path("/w"),
        "postgres://u:hush@h/db",
        "::1",
        9000,
        "turn.claimed",
        "https://claw.example.org",
        "docker compose exec claw supaclaw web",
        "@notify",
    )
    assert "hush" not in repr(environment)


def test_an_empty_variable_is_not_set() -> None:
    environment = Environment.read({"SUPACLAW_DATA": "", "SUPACLAW_PORT": "", "SUPACLAW_HOST": ""})

    assert environment.data.name == "data"
    assert environment.port is None
    assert environment.host is None


@pytest.mark.parametrize("port", ["x", "-1", "65536", "8.5"])
def test_a_port_that_is_none_is_refused_by_the_variables_name(port: str) -> None:
    with pytest.raises(ConfigError, match=r"^SUPACLAW_PORT: must be a whole number from 0 to 65535$"):
        Environment.read({"SUPACLAW_PORT": port})
