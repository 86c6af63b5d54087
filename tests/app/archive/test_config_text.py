import json

import pytest
from pydantic import JsonValue

from gateway.app.archive.config_text import saved_config
from gateway.config.load import parse
from gateway.domain.errors import ConfigError

SECRETS = {
    "models.providers.openai.api_key": "short",
    "channels.telegram.token": "123456789:AAplanted_planted_planted_planted_12",
    "channels.telegram.webhook_secret": "planted-webhook",
    "tools.mcp.github.env.GITHUB_PAT": "planted-pat",
    "tools.mcp.github.headers.X-Custom": "planted-header",
    "tools.mcp.web.url": "https://mcp.example/sse?api_key=planted-query",
    "tools.mcp.web.args[1]": "sk-planted-argument-0001",
    "models.providers.ollama.base_url": "http://user:planted-pass@host:11434",
}
CONFIG: dict[str, JsonValue] = {
    "owner": {"name": "Ada", "telegram": "77"},
    "models": {
        "primary": "openai/gpt-4o",
        "providers": {
            "openai": {"api_key": SECRETS["models.providers.openai.api_key"], "base_url": "http://10.0.0.1/v1"},
            "groq": {"api_key": "$env:GROQ_API_KEY"},
            "ollama": {"base_url": SECRETS["models.providers.ollama.base_url"]},
        },
    },
    "channels": {
        "telegram": {
            "token": SECRETS["channels.telegram.token"],
            "webhook_secret": SECRETS["channels.telegram.webhook_secret"],
            "allow": ["77"],
        }
    },
    "tools": {
        "mcp": {
            "github": {
                "env": {"GITHUB_PAT": SECRETS["tools.mcp.github.env.GITHUB_PAT"]},
                "headers": {"X-Custom": SECRETS["tools.mcp.github.headers.X-Custom"]},
            },
            "web": {"url": SECRETS["tools.mcp.web.url"], "args": ["--v", SECRETS["tools.mcp.web.args[1]"]]},
        }
    },
    "database": {"url": "postgresql://ada:planted-database@db/supaclaw"},
    "web": {"port": 9000},
}
ENVIRON = {"GROQ_API_KEY": "gsk-planted-in-the-environment"}


def cleared() -> tuple[str, tuple[str, ...]]:
    text = json.dumps(CONFIG)
    saved, left_out = saved_config(text, parse(text, ENVIRON), with_secrets=False)
    return saved.decode(), left_out


def test_no_secret_is_left_and_each_key_is_named() -> None:
    text, left_out = cleared()

    assert [value for value in SECRETS.values() if value in text] == []
    assert "planted" not in text.replace("$env:GROQ_API_KEY", "")
    assert sorted(left_out) == sorted(SECRETS)


def test_everything_else_stays_as_it_is() -> None:
    text, _ = cleared()
    raw = json.loads(text)

    assert raw["owner"] == CONFIG["owner"]
    assert raw["web"] == CONFIG["web"]
    for kept in ('"$env:GROQ_API_KEY"', '"http://10.0.0.1/v1"', '"openai/gpt-4o"', '"--v"', '"77"'):
        assert kept in text


def test_what_is_left_out_is_told_by_its_key_when_the_configuration_is_loaded() -> None:
    text, left_out = cleared()

    with pytest.raises(ConfigError) as told:
        parse(text, ENVIRON)

    lines = str(told.value).splitlines()
    assert len(lines) == len(left_out)
    for key in left_out:
        assert any(key in line and "NOT_IN_BACKUP" in line and "is not set" in line for line in lines), key


def test_with_secrets_only_the_address_of_the_database_is_left_out() -> None:
    text = json.dumps(CONFIG)
    saved, left_out = saved_config(text, parse(text, ENVIRON), with_secrets=True)

    assert left_out == ()
    assert json.loads(saved) == CONFIG | {"database": {}}
