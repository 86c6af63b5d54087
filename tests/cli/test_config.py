from pathlib import Path

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


def test_secrets_in_the_file_stay_hidden(supaclaw: Supaclaw) -> None:
    told = supaclaw("config", "set", "models.providers.openai.api_key", "very-hush").out
    assert "is set, in plain; `supaclaw secrets set NAME` stores it encrypted" in told
    assert "in plain" not in supaclaw("config", "set", "models.providers.openai.api_key", "$secret:OPENAI").out
    supaclaw("config", "set", "models.providers.openai.api_key", "very-hush")
    supaclaw("config", "set", "database.url", "postgres://me:very-hush@h/db")

    shown = supaclaw("config", "get", "models").out + supaclaw("config", "get", "database.url").out

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
