import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue

from gateway.config.channels import channel_names, enabled_channels, settings_model
from gateway.config.load import load, parse, variable_of, variables
from gateway.domain.errors import ConfigError


def test_a_variable_is_taken_from_the_environment_wherever_it_is_named() -> None:
    config = parse(
        '{"channels": {"telegram": {"token": "$env:TOKEN", "allow": ["$env:ME"]}}, "web": {"port": "$env:PORT"}}',
        {"TOKEN": "1:a", "ME": "123", "PORT": "9000"},
    )

    assert config.channels["telegram"] == {"token": "1:a", "allow": ["123"]}
    assert config.web.port == 9000


def test_only_a_whole_text_is_a_reference() -> None:
    assert parse('{"owner": {"name": "use $env:NAME"}}', {}).owner.name == "use $env:NAME"


def test_every_missing_variable_is_told_with_its_key() -> None:
    with pytest.raises(ConfigError) as refused:
        parse(
            '{"owner": {"name": "$env:A"}, "models": {"fallbacks": ["x", "$env:B"]}}',
            {"B": "", "SUPACLAW_CONFIG": "/here/config.json"},
        )

    assert str(refused.value).splitlines() == [
        "config.json: owner.name: the environment variable A is not set; write A=… into /here/.env and start again",
        "config.json: models.fallbacks[1]: the environment variable B is not set; "
        "write B=… into /here/.env and start again",
    ]


def test_a_secret_is_looked_up_by_its_name() -> None:
    config = parse('{"owner": {"name": "$secret:NAME"}}', {}, secrets={"NAME": "Ada"}.__getitem__)

    assert config.owner.name == "Ada"


def test_a_secret_that_was_never_stored_is_told_with_the_way_to_store_it() -> None:
    with pytest.raises(ConfigError) as refused:
        parse('{"owner": {"name": "$secret:NAME"}}', {})

    assert str(refused.value) == (
        "config.json: owner.name: there is no secret NAME; `supaclaw secrets set NAME` stores one"
    )


@pytest.mark.parametrize("section", ['"database": {"url": "$secret:DSN"}', '"web": {"public_url": "$secret:DSN"}'])
def test_what_a_start_needs_first_is_no_secret(section: str) -> None:
    with pytest.raises(ConfigError, match=r"a start needs this before it can read secrets; use \$env:DSN"):
        parse("{" + section + "}", {}, secrets={"DSN": "postgres://h/db"}.__getitem__)


def test_an_imported_key_is_found_where_a_variable_is_named() -> None:
    text = '{"owner": {"name": "$env:NAME"}}'

    assert parse(text, {}, secrets={"NAME": "Ada"}.__getitem__).owner.name == "Ada"
    assert parse(text, {"NAME": "Bob"}, secrets={"NAME": "Ada"}.__getitem__).owner.name == "Bob"


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
    with pytest.raises(ConfigError, match=r"is a folder, .* remove it, write the file"):
        load(tmp_path, {})


CURE = 'JSON has no comments, no comma after the last value, and straight quotes (") around names and texts'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{\n  "web": }', f"config.json: line 2, column 10: Expecting value; {CURE}"),
        ("", f"config.json: line 1, column 1: Expecting value; {CURE}"),
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
        (
            {"web": {"zzz": 1}},
            "web.zzz: unknown key; known: web.allowed_hosts, web.host, web.port, web.proxies, web.public_url",
        ),
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


def problem(environ: dict[str, str], text: str = "{}") -> str:
    with pytest.raises(ConfigError) as refused:
        parse(text, environ)
    return str(refused.value)


def test_every_key_has_a_variable() -> None:
    config = parse(
        '{"models": {"params": {"top_p": 0.5}}, "owner": {"name": "Ada"}}',
        {
            "SUPACLAW__CHANNELS__TELEGRAM__TOKEN": "1:a",
            "SUPACLAW__CHANNELS__TELEGRAM__ALLOW": '["77"]',
            "SUPACLAW__CHANNELS__WHATSAPP__ENABLED": "false",
            "SUPACLAW__MODELS__PARAMS__TEMPERATURE": "0.1",
            "SUPACLAW__MODELS__PROVIDERS__OPENAI__API_KEY": "sk-1",
            "SUPACLAW__HEARTBEAT__EVERY": "null",
            "SUPACLAW__COMPACTION__AT_TOKENS": "9000",
            "SUPACLAW__OWNER__TELEGRAM": "77",
        },
    )

    assert config.channels["telegram"] == {"token": "1:a", "allow": ["77"]}
    assert enabled_channels(config.channels) == ("telegram",)
    assert (config.models.params.temperature, config.models.params.top_p) == (0.1, 0.5)
    assert config.models.providers["openai"].api_key is not None
    assert config.heartbeat.every is None
    assert config.compaction.at_tokens == 9000
    assert config.owner.ids == {"telegram": "77"}
    assert config.owner.name == "Ada"


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("TELEGRAM_BOT_TOKEN", "1:a", "channels.telegram.token"),
        ("SLACK_BOT_TOKEN", "xoxb-1", "channels.slack.bot_token"),
        ("SLACK_APP_TOKEN", "xapp-1", "channels.slack.app_token"),
        ("SUPACLAW_OWNER_TELEGRAM", "77", "owner.telegram"),
        ("SUPACLAW_OWNER_SLACK", "U1", "owner.slack"),
        ("SUPACLAW_OWNER_NAME", "Ada", "owner.name"),
        ("SUPACLAW_TIMEZONE", "Europe/Berlin", "owner.timezone"),
        ("SUPACLAW_MODEL", "openai/x", "models.primary"),
    ],
)
def test_the_names_that_people_expect(name: str, value: str, path: str) -> None:
    found: JsonValue = parse("{}", {name: value}).model_dump(mode="json")
    for part in path.split("."):
        assert isinstance(found, dict)
        found = found[part]

    assert found == value
    assert variable_of(path, {name: value}) == name


def test_the_fields_that_a_channel_gives_names_to_are_its_own() -> None:
    for channel in channel_names():
        model = settings_model(channel)
        assert set(model.VARIABLES.values()) <= set(model.model_fields)


def test_a_full_name_beats_a_short_one_and_both_beat_the_file() -> None:
    text = '{"channels": {"telegram": {"token": "$env:GONE", "access": "owner"}}}'
    short = {"TELEGRAM_BOT_TOKEN": "2:short"}

    assert parse(text, short).channels["telegram"] == {"token": "2:short", "access": "owner"}
    full = parse(text, {**short, "SUPACLAW__CHANNELS__TELEGRAM__TOKEN": "3:full"})
    assert full.channels["telegram"]["token"] == "3:full"


def test_a_section_that_is_switched_off_stays_off() -> None:
    config = parse('{"channels": {"telegram": {"enabled": false}}}', {"TELEGRAM_BOT_TOKEN": "1:a"})

    assert enabled_channels(config.channels) == ()


def test_an_empty_variable_and_a_name_with_a_gap_set_nothing() -> None:
    environ = {"TELEGRAM_BOT_TOKEN": "", "SUPACLAW__": "x", "SUPACLAW____A": "x", "SUPACLAW__OWNER__": "x"}

    assert variables(environ) == {}


def test_a_problem_names_its_variable() -> None:
    assert problem({"SUPACLAW_PORT": "x"}) == "SUPACLAW_PORT: web.port: must be a whole number"
    assert problem({"SUPACLAW_PORT": "65536"}).startswith("SUPACLAW_PORT: web.port: must be at most 65535")
    mistyped = problem({"SUPACLAW__HEARTBEET__EVERY": "5m"})
    assert mistyped.startswith("SUPACLAW__HEARTBEET__EVERY: heartbeet: unknown key; did you mean heartbeat?")


def test_a_problem_of_the_file_stays_the_files() -> None:
    assert problem({"SUPACLAW_PORT": "9000"}, '{"web": 1}') == "config.json: web: must be an object { … }"


def test_a_key_is_set_by_the_variable_of_it_or_of_a_part() -> None:
    environ = {"SUPACLAW_PORT": "1", "SUPACLAW__MODELS__PARAMS": "{}"}

    assert variable_of("web", environ) == "SUPACLAW_PORT"
    assert variable_of("models.params.top_p", environ) == "SUPACLAW__MODELS__PARAMS"
    assert variable_of("web.host", environ) is None


def test_a_model_name_is_taken_without_the_spaces_around_it() -> None:
    models = parse('{"models": {"primary": " ollama/qwen3:8b ", "fallbacks": ["openai/x\\t"]}}', {}).models
    assert (models.primary, models.fallbacks) == ("ollama/qwen3:8b", ("openai/x",))
