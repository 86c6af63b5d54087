from gateway.config.channels import channel_names, settings_model
from gateway.config.editing.form import Field, fields, filled
from gateway.config.model import Config
from gateway.config.problems import dotted, known_keys


def form(raw: dict[str, object] | None = None, environ: dict[str, str] | None = None) -> dict[str, Field]:
    return {field.key: field for field in fields(raw or {}, environ or {})}  # type: ignore[arg-type]


def test_every_key_of_the_schema_has_a_field() -> None:
    shown = set(form({"models": {"providers": {"openai": {}}}}))
    keys = {dotted(path) for path in known_keys(Config)}
    leaves = {key for key in keys if not any(other.startswith(f"{key}.") for other in keys)} - {
        "channels",
        "models.providers",
    }
    channels = {f"channels.{name}.{key}" for name in channel_names() for key in settings_model(name).model_fields}
    assert leaves | channels <= shown
    assert {"models.providers.openai.api_key", "owner.telegram"} <= shown


def test_every_field_says_what_it_is_for() -> None:
    assert [field.key for field in form({"models": {"providers": {"openai": {}}}}).values() if not field.about] == []


def test_fields_know_their_kind_default_and_value() -> None:
    raw = {"heartbeat": {"every": None}, "web": {"port": 9000}, "channels": {"telegram": {"allow": [5, "6"]}}}
    shown = form(raw)
    assert (shown["heartbeat.every"].text, shown["heartbeat.every"].default) == ("null", "30m")
    assert (shown["web.port"].kind, shown["web.port"].text) == ("number", "9000")
    assert (shown["channels.telegram.allow"].kind, shown["channels.telegram.allow"].text) == ("list", "5\n6")
    assert shown["channels.telegram.access"].choices == ("owner", "allowlist", "pairing", "open")
    assert (shown["tools.mcp"].kind, shown["owner.name"].default) == ("json", "Owner")
    assert (shown["channels.telegram.enabled"].choices, shown["channels.telegram.enabled"].text) == (
        ("true", "false"),
        "",
    )


def test_a_secret_is_never_in_its_field_but_a_reference_is() -> None:
    raw = {
        "channels": {"telegram": {"token": "1:plain"}, "slack": {"bot_token": "$env:S"}},
        "tools": {"mcp": {"x": {"env": {"USER": "plain"}}}},
    }
    shown = form(raw, {"SLACK_APP_TOKEN": "xapp-plain", "SUPACLAW_DATABASE_URL": "postgres://u:plain@h/d"})
    assert (shown["channels.telegram.token"].text, shown["channels.telegram.token"].is_set) == ("", True)
    assert shown["channels.slack.bot_token"].text == "$env:S"
    assert (shown["channels.slack.app_token"].text, shown["channels.slack.app_token"].variable) == (
        "",
        "SLACK_APP_TOKEN",
    )
    assert (shown["database.url"].text, shown["database.url"].is_set) == ("", True)
    assert "********" in shown["tools.mcp"].text
    assert not any("plain" in field.text for field in shown.values())


def test_what_few_people_change_is_advanced() -> None:
    shown = form()
    plain = {key for key, field in shown.items() if not field.advanced}
    assert {"owner.name", "models.primary", "channels.telegram.token", "budgets.day_usd"} <= plain
    assert {"web.port", "channels.telegram.mode", "compaction.at_tokens"} <= set(shown) - plain


def test_only_what_was_touched_is_written() -> None:
    raw = {"$schema": "x", "owner": {"telegram": 5}, "web": {"port": 9000}, "channels": {"whatsapp": {}}}
    shown = list(fields(raw, {}))  # type: ignore[arg-type]
    typed = {field.key: field.text for field in shown}
    assert filled(raw, shown, typed) == raw  # type: ignore[arg-type]
    typed |= {
        "web.port": "",
        "budgets.day_usd": "3.5",
        "heartbeat.every": "null",
        "models.fallbacks": "a/b\r\n c/d \r\n",
        "channels.whatsapp.enabled": "false",
        "limits.file_mb": "$env:MB",
        "compaction.at_tokens": "many",
    }
    assert filled(raw, shown, typed) == {  # type: ignore[arg-type]
        "$schema": "x",
        "owner": {"telegram": 5},
        "web": {},
        "channels": {"whatsapp": {"enabled": False}},
        "models": {"fallbacks": ["a/b", "c/d"]},
        "heartbeat": {"every": None},
        "compaction": {"at_tokens": "many"},
        "budgets": {"day_usd": 3.5},
        "limits": {"file_mb": "$env:MB"},
    }
    assert raw["web"] == {"port": 9000}
