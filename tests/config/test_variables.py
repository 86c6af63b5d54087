import pytest
from pydantic import JsonValue

from gateway.config.channels import channel_names, enabled_channels, settings_model
from gateway.config.load import parse
from gateway.config.variables import variable_of, variables
from gateway.domain.errors import ConfigError


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
