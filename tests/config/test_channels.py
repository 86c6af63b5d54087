import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from gateway.config.channels import (
    channel_names,
    check_channels,
    known_channel,
    parse_channel,
    settings_model,
)
from gateway.config.model import Config
from gateway.domain.errors import ConfigError


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: SecretStr
    allow: tuple[str, ...] = ()


def test_a_section_becomes_the_channels_own_settings() -> None:
    settings = parse_channel("pigeon", {"token": "hush", "allow": ["1"]}, Settings)

    assert settings.token.get_secret_value() == "hush"
    assert settings.allow == ("1",)


def test_a_wrong_section_is_told_by_the_path_in_the_file() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_channel("pigeon", {"tokn": "hush", "allow": "1"}, Settings)

    assert str(refused.value).splitlines() == [
        "channels.pigeon.token: is required",
        "channels.pigeon.allow: must be a list [ … ]",
        "channels.pigeon.tokn: unknown key; did you mean channels.pigeon.token?",
    ]


def test_the_modules_of_the_package_are_the_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "birds"
    folder.mkdir()
    for name in ("__init__", "pigeon", "owl", "_feather"):
        (folder / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    assert channel_names("birds") == ("owl", "pigeon")
    assert channel_names("no_such_package") == ()


def test_an_unknown_channel_is_told_with_the_nearest() -> None:
    assert known_channel("telegram", ("telegram",)) == "telegram"
    with pytest.raises(ConfigError, match=r"^channels\.telegarm: unknown channel; did you mean telegram\?$"):
        known_channel("telegarm", ("telegram", "slack"))


def test_every_channel_offers_settings() -> None:
    assert all(issubclass(settings_model(name), BaseModel) for name in channel_names())


def test_the_problems_of_all_channels_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        check_channels(Config(channels={"nowhere": {}, "telegram": {"tokn": "1"}}))

    told = str(refused.value)
    assert "channels.nowhere: unknown channel" in told
    assert "channels.telegram.tokn: unknown key; did you mean channels.telegram.token?" in told


def test_a_section_that_is_switched_off_may_be_unfinished_but_not_unknown() -> None:
    check_channels(Config(channels={"slack": {"enabled": False}}))

    with pytest.raises(ConfigError, match=r"channels\.nowhere: unknown channel"):
        check_channels(Config(channels={"nowhere": {"enabled": False}}))


@pytest.mark.parametrize(
    ("name", "section", "problem"),
    [
        ("telegram", {"token": "@my_bot"}, "channels.telegram.token: not a bot token; @BotFather gives one"),
        ("slack", {"bot_token": "xoxp-1", "app_token": "xapp-1"}, "channels.slack.bot_token: must start with xoxb-"),
        ("slack", {"bot_token": "xoxb-1", "app_token": "xoxb-1"}, "channels.slack.app_token: must start with xapp-"),
    ],
)
def test_a_malformed_token_is_a_problem_of_the_configuration(name: str, section: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)) as refused:
        check_channels(Config.model_validate({"channels": {name: section}}))

    assert not any(token in str(refused.value) for token in ("@my_bot", "xoxp-1"))


def test_no_channels_are_no_problem() -> None:
    check_channels(Config())

    assert "telegram" in channel_names()


def test_a_channel_without_a_model_of_settings_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "channels.pigeon", SimpleNamespace(Settings=object))

    with pytest.raises(TypeError, match=r"channels\.pigeon\.Settings is not a model of settings"):
        settings_model("pigeon")
