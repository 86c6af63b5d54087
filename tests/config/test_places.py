import json
import os
from pathlib import Path

import pytest

from gateway.config.data.instance import hold_instance
from gateway.config.environment import Environment
from gateway.config.places import MOST, Place, check_only, find, record, started
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

    assert find(home) == (tmp_path / ".config" / "supaclaw" / "config.json", share, share / "workspace")
    moved = find({**home, "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "relative"})
    assert (moved.config, moved.data) == (Path("/c/supaclaw/config.json"), share)


def test_from_anywhere_it_is_the_last_one_that_was_started(home: dict[str, str], tmp_path: Path) -> None:
    first, second = gateway(tmp_path / "first"), gateway(tmp_path / "second")
    for place in (first, second, first):
        record(home, place)

    assert started(home) == [second, first]
    assert find(home) == first
    assert Environment.read(home).place == first
    assert (tmp_path / ".local/state/supaclaw/gateways.json").stat().st_mode & 0o777 == 0o600


def test_the_folder_one_stands_in_comes_first_if_one_was_started_there(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = gateway(tmp_path / "first"), gateway(tmp_path / "second")
    record(home, first)
    record(home, second)

    monkeypatch.chdir(tmp_path / "first")
    assert find(home) == first


def test_the_environment_comes_before_all(home: dict[str, str], tmp_path: Path) -> None:
    record(home, gateway(tmp_path / "first"))
    chosen = Environment.read({**home, "SUPACLAW_DATA": "/d"})

    assert chosen.place == (tmp_path / "elsewhere" / "config.json", Path("/d"), Path("/d/workspace"))


def test_a_folder_that_looks_like_one_counts_for_a_start_alone(home: dict[str, str], tmp_path: Path) -> None:
    """It may have come with something that was downloaded."""
    mine = gateway(tmp_path / "mine")
    here = gateway(tmp_path / "elsewhere")
    here.config.write_text("{}")
    assert find(home) == here

    record(home, mine)

    assert find(home) == mine
    assert find(home, starting=True) == here


def test_a_gateway_that_runs_here_is_found_without_a_record(home: dict[str, str], tmp_path: Path) -> None:
    """As one that systemd started, which cannot write to a home."""
    record(home, gateway(tmp_path / "mine"))
    here = gateway(tmp_path / "elsewhere")

    with hold_instance(here.data):
        assert find(home) == here


def test_a_second_agent_has_to_be_asked_for(home: dict[str, str], tmp_path: Path) -> None:
    mine, other = gateway(tmp_path / "mine"), gateway(tmp_path / "other")
    check_only(home, other.data)
    record(home, mine)

    with pytest.raises(OwnerMustAct, match=rf"you already have an agent, in {mine.data}.*SUPACLAW_DATA={other.data} "):
        check_only(home, other.data)
    check_only(home, mine.data)
    check_only({**home, "SUPACLAW_DATA": str(other.data)}, other.data)
    mine.data.rmdir()
    check_only(home, other.data)


@pytest.mark.parametrize("text", ["", "{", json.dumps({"config": 1}), json.dumps([{"config": "/a"}])])
def test_a_record_that_cannot_be_read_is_none(home: dict[str, str], tmp_path: Path, text: str) -> None:
    file = tmp_path / ".local/state/supaclaw/gateways.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)

    assert started(home) == []
    record(home, place := gateway(tmp_path / "mine"))
    assert started(home) == [place]


def test_a_record_is_not_kept_where_it_cannot_be(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".local").touch()
    record(home, gateway(tmp_path / "mine"))
    assert started(home) == []

    container = Place(tmp_path / "config.json", tmp_path, tmp_path / "workspace")
    record({"HOME": str(tmp_path)}, container)
    assert not (tmp_path / ".config").exists()


def test_the_record_does_not_grow_for_ever(home: dict[str, str], tmp_path: Path) -> None:
    for number in range(MOST + 2):
        record(home, gateway(tmp_path / str(number)))

    assert len(started(home)) == MOST
    assert os.path.basename(started(home)[-1].config.parent) == str(MOST + 1)
