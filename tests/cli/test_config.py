from pathlib import Path

import pytest

from tests.cli.conftest import Supaclaw


def test_a_setting_is_written_and_read_back(supaclaw: Supaclaw, place: Path) -> None:
    assert supaclaw("config", "set", "compaction.at_tokens", "5").out == "compaction.at_tokens is set\n"

    assert supaclaw("config", "get", "compaction.at_tokens").out == "5\n"
    assert (place / "config.json").read_text() == '{\n  "compaction": {\n    "at_tokens": 5\n  }\n}\n'


def test_what_is_not_json_is_text(supaclaw: Supaclaw) -> None:
    supaclaw("config", "set", "models.primary", "openai/gpt-5.6")

    assert supaclaw("config", "get", "models.primary").out == "openai/gpt-5.6\n"


def test_a_section_is_told_as_json_with_its_defaults(supaclaw: Supaclaw) -> None:
    assert supaclaw("config", "get", "web").json == {
        "host": "127.0.0.1",
        "port": 8787,
        "public_url": None,
        "proxies": [],
        "allowed_hosts": [],
    }


def test_a_wrong_setting_is_refused_and_not_written(supaclaw: Supaclaw, place: Path) -> None:
    done = supaclaw("config", "set", "web.prot", "1")

    assert done.code == 1
    assert done.err == "supaclaw: config.json: web.prot: unknown key; did you mean web.port?\n"
    assert not (place / "config.json").exists()


def test_a_channels_settings_are_checked_too(supaclaw: Supaclaw) -> None:
    done = supaclaw("config", "set", "channels.telegram.tokn", "1:a")

    assert done.code == 1
    assert "channels.telegram.tokn: unknown key; did you mean channels.telegram.token?" in done.err


def test_a_key_is_kept_outside_of_the_file(supaclaw: Supaclaw, place: Path) -> None:
    told = supaclaw("config", "set", "models.providers.openai.api_key", "very-hush").out

    name = "MODELS_PROVIDERS_OPENAI_API_KEY"
    assert told.startswith("models.providers.openai.api_key is set\nits value is kept as ")
    assert "hush" not in (place / "config.json").read_text() + told
    assert supaclaw("config", "get", "models.providers.openai.api_key").out == f"$env:{name}\n"
    saved = place / "data" / "keys" / f"{name.lower()}.env"
    assert (saved.read_text(), saved.stat().st_mode & 0o777) == (f"{name}='very-hush'\n", 0o600)
    assert supaclaw("config", "validate").code == 0


def test_the_keys_of_a_refused_setting_are_kept_nowhere(supaclaw: Supaclaw, place: Path) -> None:
    assert supaclaw("config", "set", "channels.telegram.token", "no-token").code == 1
    assert supaclaw("config", "set", "models.providers.openai", '{"api_key": "hush", "base": "x"}').code == 1

    assert not (place / "data").exists()


def test_a_value_that_a_variable_would_hide_is_refused(
    supaclaw: Supaclaw, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELS_PROVIDERS_OPENAI_API_KEY", "another")

    done = supaclaw("config", "set", "models.providers.openai.api_key", "very-hush")

    assert "MODELS_PROVIDERS_OPENAI_API_KEY is set in the environment, which overrides saved values" in done.err
    assert not (place / "config.json").exists()


def test_secrets_in_the_file_stay_hidden(supaclaw: Supaclaw) -> None:
    told = supaclaw("config", "set", "database.url", "postgres://me:very-hush@h/db").out
    assert "is set, in plain; `supaclaw secrets set NAME` stores it encrypted" in told
    headers = '{"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer very-hush"}}'
    assert "in plain" in supaclaw("config", "set", "tools.mcp.time", headers).out
    assert "in plain" not in supaclaw("config", "set", "models.providers.openai.api_key", "$secret:OPENAI").out

    shown = supaclaw("config", "get", "tools").out + supaclaw("config", "get", "database.url").out

    assert "hush" not in shown + told
    assert "postgres://me:[hidden]@h/db" in shown


def test_a_valid_file_is_called_valid(supaclaw: Supaclaw, place: Path) -> None:
    assert supaclaw("config", "validate").out.endswith("config.json: not there; the defaults are used\n")

    (place / "config.json").write_text("{}")

    assert supaclaw("config", "validate").out.endswith("config.json: valid\n")


def test_every_problem_of_a_file_is_told(supaclaw: Supaclaw, place: Path) -> None:
    (place / "config.json").write_text('{"web": {"port": "x"}, "budgets": {"day_usd": -1}}')

    done = supaclaw("config", "validate")

    assert done.code == 1
    assert done.err.count("supaclaw: config.json: ") == 2


def test_the_schema_is_json(supaclaw: Supaclaw) -> None:
    schema = supaclaw("config", "schema").json

    assert isinstance(schema, dict)
    assert schema["title"] == "Config"
