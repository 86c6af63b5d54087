import asyncio
import json
from pathlib import Path

import pytest

from gateway.config.channels import check_channels
from gateway.config.data.keys import read_keys, save_keys
from gateway.config.load import load
from gateway.config.model import Config
from gateway.config.watch import ConfigWatch
from gateway.domain.errors import ConfigError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"SUPACLAW_DATA": str(tmp_path / "data"), "SUPACLAW_CONFIG": str(tmp_path / "config.json")}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def configured(data: Path, config: dict[str, object], environ: dict[str, str]) -> Config:
    path = data.parent / "config.json"
    path.write_text(json.dumps(config))
    return load(path, environ)


def test_what_is_saved_is_its_users_alone_and_is_replaced_whole(data: Path) -> None:
    save_keys(data, "slack", {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"})
    save_keys(data, "slack", {"SLACK_BOT_TOKEN": "xoxb-2"})

    assert read_keys(data) == {"SLACK_BOT_TOKEN": "xoxb-2"}
    assert [path.name for path in (data / "keys").iterdir()] == ["slack.env"]
    assert (data / "keys" / "slack.env").stat().st_mode & 0o777 == 0o600
    assert (data / "keys").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("key", ["sk-${HOME}$x", 'sk-"#=;`~', "1234:AB-c_d"])
def test_a_key_comes_back_as_it_was(data: Path, key: str) -> None:
    save_keys(data, "openai", {"OPENAI_API_KEY": key})
    assert read_keys(data) == {"OPENAI_API_KEY": key}


@pytest.mark.parametrize("key", ["two words", "a\nB=c", "a'b", "a\\b", "", "ключ"])
def test_what_is_no_key_is_not_saved_and_not_shown(data: Path, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        save_keys(data, "openai", {"OPENAI_API_KEY": key})

    assert read_keys(data) == {}
    assert not key or key not in str(refused.value)


def test_a_reference_is_filled_by_the_environment_and_else_by_what_is_saved(
    data: Path, environ: dict[str, str]
) -> None:
    config: dict[str, object] = {"owner": {"name": "$env:NAME"}}
    with pytest.raises(ConfigError, match="NAME is not set"):
        configured(data, config, environ)
    save_keys(data, "own", {"NAME": "Ada"})

    assert configured(data, config, environ).owner.name == "Ada"
    assert configured(data, config, environ | {"NAME": ""}).owner.name == "Ada"
    assert configured(data, config, environ | {"NAME": "Bo"}).owner.name == "Bo"


def test_a_saved_key_sets_nothing_by_itself(data: Path, environ: dict[str, str]) -> None:
    save_keys(data, "telegram", {"TELEGRAM_BOT_TOKEN": "1:a", "SUPACLAW_OWNER_NAME": "Mallory"})

    config = configured(data, {"owner": {"name": "Ada"}}, environ)
    assert (config.owner.name, config.channels) == ("Ada", {})


async def test_a_replaced_key_is_applied_without_an_edit(data: Path, environ: dict[str, str]) -> None:
    save_keys(data, "own", {"NAME": "Ada"})
    config = configured(data, {"owner": {"name": "$env:NAME"}}, environ)
    path, seen = data.parent / "config.json", asyncio.Queue[Config]()

    def parsed(_: str) -> Config:
        found = load(path, environ)
        check_channels(found)
        return found

    watch = ConfigWatch(path, config, parsed, lambda _: asyncio.sleep(0), _keys=lambda: read_keys(data))
    watch.subscribe(seen.put)
    await watch.look()
    save_keys(data, "own", {"NAME": "Bo"})
    await watch.look()

    assert (await seen.get()).owner.name == "Bo"
    assert seen.empty()
