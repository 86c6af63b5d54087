import os
from pathlib import Path

import pytest

from gateway.config.environment import Environment, read_env_file


def test_beside_a_configuration_everything_has_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text("{}")

    environment = Environment.read({"HOME": str(tmp_path / "home")})

    assert environment == Environment(
        tmp_path / "config.json", tmp_path / "data", tmp_path / "data" / "workspace", f"{tmp_path}/.env"
    )


def test_every_variable_is_read() -> None:
    environment = Environment.read(
        {
            "SUPACLAW_CONFIG": "/c.json",
            "SUPACLAW_DATA": "/d",
            "SUPACLAW_WORKSPACE": "/w",
            "SUPACLAW_ENV_FILE": "/e",
            "SUPACLAW_FAIL": "turn.claimed",
            "SUPACLAW_SIGN_IN": "docker compose exec claw supaclaw web",
            "NOTIFY_SOCKET": "@notify",
        }
    )

    assert environment == Environment(
        Path("/c.json"),
        Path("/d"),
        Path("/w"),
        "/e",
        "turn.claimed",
        "docker compose exec claw supaclaw web",
        "@notify",
    )


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    environment = Environment.read({"HOME": str(tmp_path), "SUPACLAW_DATA": "", "SUPACLAW_FAIL": ""})

    assert environment.data.name == "data"
    assert environment.fail is None


def test_the_env_file_adds_what_is_not_set(tmp_path: Path) -> None:
    environ = {"SUPACLAW_CONFIG": f"{tmp_path}/config.json", "SET": "outside", "EMPTY": ""}
    (tmp_path / ".env").write_text("# keys\nexport KEY='a $b'\nSET=file\nEMPTY=file\nNOTHING=\n")

    read_env_file(environ)

    assert (environ["KEY"], environ["SET"], environ["EMPTY"]) == ("a $b", "outside", "file")
    assert "NOTHING" not in environ


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_env_file_of_somebody_else_is_left_to_them(tmp_path: Path) -> None:
    environ = {"SUPACLAW_ENV_FILE": f"{tmp_path}/.env"}
    (tmp_path / ".env").write_text("KEY=a\n")
    (tmp_path / ".env").chmod(0)

    read_env_file(environ)

    assert "KEY" not in environ
