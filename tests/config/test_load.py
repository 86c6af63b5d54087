import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue

from gateway.config.load import load, parse
from gateway.domain.errors import ConfigError

EXAMPLE = """
{ "owner": {"name": "Ada", "telegram": "123", "slack": null, "whatsapp": null},
  "models": {"primary": "auto", "fallbacks": [], 
             "params": {"temperature": 0.7, "top_p": 1.0, "max_output_tokens": 4096},
             "providers": {"openai": {"api_key": "$env:OPENAI_API_KEY", "base_url": null}},
             "embedding": "local", "summary": null },
  "channels": {"telegram": {"token": "...", "mode": "polling", "api_base": null, 
                            "access": "allowlist", "allow": ["123"]},
               "slack": {"bot_token": "...", "app_token": "...", "base_url": null, "allow": []},
               "whatsapp": {"enabled": false, "allow": []}},
  "heartbeat": {"every": "30m", "active_hours": null}, "compaction": {"at_tokens": 64000},
  "checkpoints": {"every": "10m"},
  "tools": {"exec": {"mode": "auto"}, "web": {"allow_hosts": [], "deny_hosts": []}, "mcp": {}},
  "budgets": {"run_usd": 0.5, "day_usd": 2.0, "month_usd": 20.0}, "web": {"host": "127.0.0.1", "port": 8787},
  "database": {"url": null} }
"""


def problems(raw: JsonValue, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse(json.dumps(raw), environ or {})
    return [line.removeprefix("config.json: ") for line in str(refused.value).splitlines()]


def test_a_full_example_is_valid() -> None:
    config = parse(EXAMPLE, {"OPENAI_API_KEY": "sk-1"})

    key = config.models.providers["openai"].api_key
    assert key is not None
    assert key.get_secret_value() == "sk-1"
    assert config.channels["telegram"]["allow"] == ["123"]


def test_a_missing_file_means_the_defaults(tmp_path: Path) -> None:
    config = load(tmp_path / "config.json", {})

    assert config == parse("{}", {})


def test_a_file_is_read_whether_or_not_an_editor_marked_it_as_utf8(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"owner": {"name": "Zoë"}}', encoding="utf-8-sig")

    assert load(path, {}).owner.name == "Zoë"


def test_what_cannot_be_read_is_told_with_its_reason(tmp_path: Path) -> None:
    binary = tmp_path / "config.json"
    binary.write_bytes(b"\xff\xfe{}")

    with pytest.raises(ConfigError, match="cannot be read: it is not UTF-8 text"):
        load(binary, {})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{\n  "web": }', "config.json: line 2, column 10: Expecting value"),
        ("", "config.json: line 1, column 1: Expecting value"),
        ("[1]", "config.json: must be an object { … }"),
        ('{"web": {}, "web": {}}', "config.json: the key 'web' appears twice in one object; keep one"),
        ("[" * 100_000, "config.json: nested too deeply"),
    ],
)
def test_what_is_no_json_object_is_refused_in_one_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text, {})

    assert str(refused.value) == told


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"modles": {}}, "modles: unknown key; did you mean models?"),
        ({"web": {"prot": 1}}, "web.prot: unknown key; did you mean web.port?"),
        ({"temperature": 1}, "temperature: unknown key; did you mean models.params.temperature?"),
        ({"web": {"zzz": 1}}, "web.zzz: unknown key; known: web.allowed_hosts, web.host, web.port, web.public_url"),
        (
            {"models": {"providers": {"openai": {"api_kye": "sk-1"}}}},
            "models.providers.openai.api_kye: unknown key; did you mean models.providers.openai.api_key?",
        ),
        ({"web": {"port": "x"}}, "web.port: must be a whole number"),
        ({"web": {"port": 70000}}, "web.port: must be at most 65535"),
        ({"web": {"port": -1}}, "web.port: must be at least 0"),
        ({"web": {"host": ""}}, "web.host: must not be empty"),
        ({"web": {"host": 1}}, 'web.host: must be a text in "quotes"'),
        ({"web": []}, "web: must be an object { … }"),
        ({"models": {"params": {"top_p": 0}}}, "models.params.top_p: must be greater than 0.0"),
        ({"models": {"fallbacks": "x"}}, "models.fallbacks: must be a list [ … ]"),
        ({"models": {"fallbacks": ["a", 1]}}, 'models.fallbacks[1]: must be a text in "quotes"'),
        ({"budgets": {"run_usd": []}}, "budgets.run_usd: must be a number"),
        ({"tools": {"exec": {"mode": "yes"}}}, "tools.exec.mode: must be 'auto' or 'off'"),
        ({"heartbeat": {"every": 30}}, 'heartbeat.every: must be a duration such as "90s", "30m" or "1h30m"'),
        (
            {"heartbeat": {"active_hours": "day"}},
            'heartbeat.active_hours: must be two different times such as "08:00-22:00"',
        ),
        ({"channels": {"telegram": []}}, "channels.telegram: must be an object { … }"),
        ({"owner": {"telegram": []}}, 'owner.telegram: must be a text in "quotes"'),
    ],
)
def test_a_wrong_value_is_told_by_its_path_and_what_is_allowed(raw: JsonValue, told: str) -> None:
    assert problems(raw) == [told]


def test_all_problems_are_told_at_once() -> None:
    assert problems({"web": {"port": "x"}, "budgets": {"day_usd": -1}}) == [
        "budgets.day_usd: must be at least 0.0",
        "web.port: must be a whole number",
    ]


def test_no_value_is_repeated_in_a_problem() -> None:
    assert "hush" not in str(problems({"models": {"providers": {"openai": {"api_key": ["hush"]}}}}))


def test_a_problem_names_the_file_it_is_in() -> None:
    with pytest.raises(ConfigError, match=r"^other\.json: web: must be"):
        parse('{"web": 1}', {}, source="other.json")


def test_the_environment_beats_the_file() -> None:
    environ = {"SUPACLAW_HOST": "::1", "SUPACLAW_PORT": "9000", "SUPACLAW_DATABASE_URL": "postgres://h/db"}

    config = parse('{"web": {"port": 1}, "database": {"url": "postgres://other/db"}}', environ)

    assert (config.web.host, config.web.port) == ("::1", 9000)
    assert config.database.url is not None
    assert config.database.url.get_secret_value() == "postgres://h/db"


def test_the_environment_does_not_hide_a_section_that_is_no_object() -> None:
    assert problems({"web": 1}, {"SUPACLAW_PORT": "9000"}) == ["web: must be an object { … }"]


def test_an_editor_may_be_told_where_the_schema_is() -> None:
    assert parse('{"$schema": "./schema.json"}', {}) == parse("{}", {})
