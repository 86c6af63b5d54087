from pathlib import Path

import pytest
from pydantic import JsonValue

from gateway.config.editing import config_file
from gateway.config.editing.hidden import masked
from gateway.config.load import parse
from gateway.domain.errors import ConfigError

WRITTEN = """{
  "web": {
    "port": 9000
  },
  "owner": {
    "name": "Zoë",
    "telegram": "$env:ME"
  }
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(WRITTEN, encoding="utf-8")
    return path


def write(path: Path, key: str, value: JsonValue) -> None:
    config_file.set_key(path, key, value, lambda text: parse(text, {"ME": "1"}))


def test_a_value_is_told_as_it_is_written(path: Path) -> None:
    assert config_file.get_key(path, "web.port", {}) == 9000
    assert config_file.get_key(path, "owner.telegram", {}) == "$env:ME"


def test_what_is_not_written_has_its_default(path: Path) -> None:
    assert config_file.get_key(path, "web.host", {}) == "127.0.0.1"
    assert config_file.get_key(path, "heartbeat.every", {}) == "30m"
    assert config_file.get_key(path, "web", {}) == {
        "host": "127.0.0.1",
        "port": 9000,
        "public_url": None,
        "proxies": [],
        "allowed_hosts": [],
    }
    assert config_file.get_key(path, "database.url", {}) is None


def test_an_unknown_key_is_told_with_the_nearest(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^web\.prt: there is no such key; see web\.port$"):
        config_file.get_key(path, "web.prt", {})
    with pytest.raises(ConfigError, match="see `supaclaw config schema`"):
        config_file.get_key(path, "qqq", {})


def test_one_key_changes_and_the_rest_stays(path: Path) -> None:
    write(path, "web.port", 9001)

    assert path.read_text(encoding="utf-8") == WRITTEN.replace("9000", "9001")


def test_sections_on_the_way_are_made(path: Path) -> None:
    path.unlink()

    write(path, "models.params.temperature", 0)

    assert path.read_text() == '{\n  "models": {\n    "params": {\n      "temperature": 0\n    }\n  }\n}\n'
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_would_be_wrong_is_not_written(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"web\.port: must be a whole number"):
        write(path, "web.port", "x")

    assert path.read_text(encoding="utf-8") == WRITTEN


def test_nothing_can_be_set_inside_a_plain_value(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^web\.port\.x: web\.port is not an object"):
        write(path, "web.port.x", 1)


def test_the_file_keeps_its_mode_and_leaves_nothing_beside_it(path: Path) -> None:
    path.chmod(0o640)

    write(path, "web.port", 9001)

    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in path.parent.iterdir()] == ["config.json"]


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(path)

    write(link, "web.port", 9001)

    assert link.is_symlink()
    assert "9001" in path.read_text(encoding="utf-8")


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        write(tmp_path / "none" / "config.json", "web.port", 1)


def test_written_out_secrets_are_hidden_and_references_are_not() -> None:
    providers: JsonValue = {"openai": {"api_key": "sk-1", "base_url": "http://h"}, "groq": {"api_key": "$env:G"}}

    assert masked(providers, ("models", "providers")) == {
        "openai": {"api_key": "********", "base_url": "http://h"},
        "groq": {"api_key": "$env:G"},
    }
    assert masked("1:a", ("channels", "telegram", "token")) == "********"
    assert masked(5, ("compaction", "at_tokens")) == 5
