import json
import os
from pathlib import Path

import pytest

from gateway.config.data.instance import hold_instance
from gateway.config.environment import (
    MAX_PLACES,
    Environment,
    Place,
    check_only_agent,
    find_place,
    known_places,
    read_env_file,
    remember_place,
)
from gateway.domain.errors import OwnerMustAct


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A person who stands in `elsewhere` and has started nothing."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return {"HOME": str(tmp_path)}


def gateway(folder: Path) -> Place:
    (folder / "data").mkdir(parents=True)
    return Place(folder / "config.json", folder / "data", folder / "data" / "workspace")


def test_without_anything_the_folders_are_the_users_own(home: dict[str, str], tmp_path: Path) -> None:
    share = tmp_path / ".local" / "share" / "supaclaw"

    assert find_place(home) == (tmp_path / ".config" / "supaclaw" / "config.json", share, share / "workspace")
    moved = find_place({**home, "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "relative"})
    assert (moved.config, moved.data) == (Path("/c/supaclaw/config.json"), share)


def test_from_anywhere_it_is_the_last_one_that_was_started(home: dict[str, str], tmp_path: Path) -> None:
    first, second = gateway(tmp_path / "first"), gateway(tmp_path / "second")
    for place in (first, second, first):
        remember_place(home, place)

    assert known_places(home) == [second, first]
    assert find_place(home) == first
    assert Environment.read(home).place == first
    assert (tmp_path / ".local/state/supaclaw/gateways.json").stat().st_mode & 0o777 == 0o600


def test_the_folder_one_stands_in_comes_first_if_one_was_started_there(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = gateway(tmp_path / "first"), gateway(tmp_path / "second")
    remember_place(home, first)
    remember_place(home, second)

    monkeypatch.chdir(tmp_path / "first")
    assert find_place(home) == first


def test_the_environment_comes_before_all(home: dict[str, str], tmp_path: Path) -> None:
    remember_place(home, gateway(tmp_path / "first"))
    chosen = Environment.read({**home, "SUPACLAW_DATA": "/d"})

    assert chosen.place == (tmp_path / "elsewhere" / "config.json", Path("/d"), Path("/d/workspace"))


def test_a_folder_that_looks_like_one_counts_for_a_start_alone(home: dict[str, str], tmp_path: Path) -> None:
    """It may have come with something that was downloaded."""
    mine = gateway(tmp_path / "mine")
    here = gateway(tmp_path / "elsewhere")
    here.config.write_text("{}")
    assert find_place(home) == here

    remember_place(home, mine)

    assert find_place(home) == mine
    assert find_place(home, starting=True) == here


def test_a_gateway_that_runs_here_is_found_without_a_record(home: dict[str, str], tmp_path: Path) -> None:
    """As one that systemd started, which cannot write to a home."""
    remember_place(home, gateway(tmp_path / "mine"))
    here = gateway(tmp_path / "elsewhere")

    with hold_instance(here.data):
        assert find_place(home) == here


def test_a_second_agent_has_to_be_asked_for(home: dict[str, str], tmp_path: Path) -> None:
    mine, other = gateway(tmp_path / "mine"), gateway(tmp_path / "other")
    check_only_agent(home, other.data)
    remember_place(home, mine)

    with pytest.raises(OwnerMustAct, match=rf"you already have an agent, in {mine.data}.*SUPACLAW_DATA={other.data} "):
        check_only_agent(home, other.data)
    check_only_agent(home, mine.data)
    check_only_agent({**home, "SUPACLAW_DATA": str(other.data)}, other.data)
    mine.data.rmdir()
    check_only_agent(home, other.data)


@pytest.mark.parametrize("text", ["", "{", json.dumps({"config": 1}), json.dumps([{"config": "/a"}])])
def test_a_record_that_cannot_be_read_is_none(home: dict[str, str], tmp_path: Path, text: str) -> None:
    file = tmp_path / ".local/state/supaclaw/gateways.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)

    assert known_places(home) == []
    remember_place(home, place := gateway(tmp_path / "mine"))
    assert known_places(home) == [place]


def test_a_record_is_not_kept_where_it_cannot_be(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".local").touch()
    remember_place(home, gateway(tmp_path / "mine"))
    assert known_places(home) == []

    container = Place(tmp_path / "config.json", tmp_path, tmp_path / "workspace")
    remember_place({"HOME": str(tmp_path)}, container)
    assert not (tmp_path / ".config").exists()


def test_the_record_does_not_grow_for_ever(home: dict[str, str], tmp_path: Path) -> None:
    for number in range(MAX_PLACES + 2):
        remember_place(home, gateway(tmp_path / str(number)))

    assert len(known_places(home)) == MAX_PLACES
    assert os.path.basename(known_places(home)[-1].config.parent) == str(MAX_PLACES + 1)


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
