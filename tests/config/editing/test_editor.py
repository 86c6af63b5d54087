import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from gateway.config.editing.config_file import Unwritable
from gateway.config.editing.editor import compare
from gateway.domain.errors import ConfigError
from tests.config.editing.conftest import KEY, WRITTEN, Desk, desk_in


async def test_a_change_is_written_applied_and_leaves_the_rest(desk: Desk) -> None:
    assert await desk.save(heartbeat__every="1h", web__port="9001") == {
        "heartbeat": "applied",
        "web": "needs a restart",
    }
    assert desk.written == json.loads(WRITTEN) | {"heartbeat": {"every": "1h"}, "web": {"port": 9001}}
    assert list(desk.written)[:4] == ["$schema", "owner", "models", "channels"]
    assert desk.watch.current.heartbeat.every is not None
    assert desk.watch.current.heartbeat.every.total_seconds() == 3600
    assert desk.watch.current.web.port == 8787


async def test_what_applies_at_once_within_a_section_that_waits_is_known(desk: Desk) -> None:
    assert await desk.save(web__allowed_hosts="host.docker.internal") == {"web": "applied"}


async def test_a_part_that_fails_to_take_it_is_told(desk: Desk) -> None:
    async def fail(_: object) -> None:
        raise KeyError

    desk.watch.subscribe(fail)
    assert await desk.save(logs__keep="90d") == {"logs": "not applied; see the log"}


async def test_the_review_shows_the_difference_and_what_to_ask_twice_about(desk: Desk) -> None:
    values = {"budgets.day_usd": "9", "channels.telegram.access": "open", "web.allowed_hosts": "x.example"}
    wanted = desk.editor.typed(desk.stamp, {**values, "heartbeat.every": "2h"})
    assert '+    "day_usd": 9' in wanted.difference
    assert wanted.sections == {"channels": False, "heartbeat": False, "budgets": False, "web": False}
    assert set(wanted.delicate) == {"budgets.day_usd", "channels.telegram.access", "web.allowed_hosts"}
    assert list(desk.editor.typed(desk.stamp, {"owner.slack": "U1"}).delicate) == ["owner.slack"]
    assert not desk.editor.typed(desk.stamp, {"owner.name": "Zora", "owner.timezone": "Europe/Berlin"}).delicate
    assert desk.path.read_text(encoding="utf-8") == WRITTEN


async def test_a_channel_added_or_removed_as_a_whole_is_delicate_for_whom_it_lets_in(desk: Desk) -> None:
    document = json.loads(desk.editor.form().text)
    assert desk.editor.written(desk.stamp, json.dumps(document | {"channels": {}})).delicate == {
        "channels.telegram.allow": "who may talk to the agent"
    }
    document["channels"]["whatsapp"] = {}
    assert desk.editor.written(desk.stamp, json.dumps(document)).delicate == {}
    document["channels"]["whatsapp"] = {"access": "open"}
    assert desk.editor.written(desk.stamp, json.dumps(document)).delicate == {
        "channels.whatsapp.access": "who may talk to the agent"
    }


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"hooks": {"ci": {"url": "https://evil.example/"}}}, "hooks.ci.url"),
        ({"tools": {"mcp": {"x": {"command": "nc evil.example 1"}}}}, "tools.mcp.x.command"),
        ({"backup": {"to": "/mnt/theirs"}}, "backup.to"),
        (
            {"models": {"providers": {"openai": {"base_url": "https://evil.example/v1"}}}},
            "models.providers.openai.base_url",
        ),
        ({"net": {"private_allow": ["10.0.0.1"]}}, "net.private_allow"),
        ({"tools": {"bash": {"allow_urls": ["https://evil.example/"]}}}, "tools.bash.allow_urls"),
    ],
)
def test_a_new_address_that_data_may_go_to_is_delicate_and_a_removed_one_is_not(
    more: dict[str, JsonValue], key: str
) -> None:
    assert compare(None, {}, more).delicate[key] == "where it connects and sends data"
    assert compare(None, more, {}).delicate == {}


async def test_true_and_one_differ(desk: Desk) -> None:
    document = json.loads(desk.editor.form().text) | {"channels": {"telegram": {"token": "$env:BOT", "enabled": 1}}}
    desk.path.write_text(json.dumps(document))
    document["channels"]["telegram"]["enabled"] = True
    assert desk.editor.written(desk.stamp, json.dumps(document)).sections == {"channels": False}


async def test_a_save_is_taken_back_byte_for_byte_and_again(desk: Desk) -> None:
    await desk.save(heartbeat__every="1h")
    changed = desk.path.read_text(encoding="utf-8")
    assert await desk.editor.save(desk.editor.revert()) == {"heartbeat": "applied"}
    assert desk.path.read_text(encoding="utf-8") == WRITTEN
    await desk.editor.save(desk.editor.revert())
    assert desk.path.read_text(encoding="utf-8") == changed


async def test_there_is_no_way_back_past_somebody_elses_edit(desk: Desk) -> None:
    assert not desk.editor.form().revertible
    await desk.save(heartbeat__every="1h")
    assert desk.editor.form().revertible
    desk.path.write_text("{}")
    assert not desk.editor.form().revertible
    with pytest.raises(ConfigError, match="changed elsewhere"):
        desk.editor.revert()


async def test_the_version_before_is_private(desk: Desk) -> None:
    await desk.save(heartbeat__every="1h")
    assert (desk.path.parent / "data" / "config.previous").stat().st_mode & 0o777 == 0o600


async def test_a_file_that_changed_meanwhile_is_not_overwritten(desk: Desk) -> None:
    stamp = desk.stamp
    wanted = desk.editor.typed(stamp, {"heartbeat.every": "1h"})
    desk.path.write_text('{"logs": {"keep": "9d"}}')
    for attempt in (lambda: desk.editor.typed(stamp, {}), lambda: desk.editor.written(stamp, "{}")):
        with pytest.raises(ConfigError, match="changed meanwhile"):
            attempt()
    with pytest.raises(ConfigError, match="changed meanwhile"):
        await desk.editor.save(wanted)
    assert desk.written == {"logs": {"keep": "9d"}}


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("web.port", "99999", "web.port: must be at most 65535"),
        ("heartbeat.every", "soon", 'heartbeat.every: must be a duration such as "90s"'),
        ("channels.telegram.allow", "@me", "channels.telegram.allow"),
        ("channels.slack.access", "open", "channels.slack.bot_token: is required"),
        ("owner.telegram", "@me", "owner.telegram: must be your own id"),
        ("database.url", "$env:NOT_THERE", "NOT_THERE=… into"),
    ],
)
async def test_an_invalid_value_is_refused_with_its_key(desk: Desk, key: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("[", r"\[").replace(".", r"\.")):
        desk.editor.typed(desk.stamp, {key: text})


async def test_what_the_environment_sets_is_not_edited(desk: Desk) -> None:
    fields = {field.key: field for field in desk.editor.form().fields}
    assert (fields["models.primary"].variable, fields["models.primary"].text) == ("SUPACLAW_MODEL", "openai/gpt-5")
    with pytest.raises(ConfigError, match=r"models\.primary: set by SUPACLAW_MODEL in the environment"):
        desk.editor.typed(desk.stamp, {"models.primary": "a/b"})
    document = json.loads(desk.editor.form().text)
    document["models"]["primary"] = "a/b"
    with pytest.raises(ConfigError, match="set by SUPACLAW_MODEL"):
        desk.editor.written(desk.stamp, json.dumps(document))


@pytest.mark.parametrize(
    ("key", "secret", "way"),
    [
        ("database.url", "postgres://u:hunter2@h/d", "SUPACLAW_DATABASE_URL=… into"),
        ("models.providers.openai.api_key", "********", "a secret isn't saved from here"),
        ("owner.name", "sk-pasted-into-the-wrong-field", "owner.name: a secret isn't saved from here"),
    ],
)
async def test_a_secret_that_is_typed_where_none_belongs_is_refused_with_the_way_to_store_it(
    desk: Desk, key: str, secret: str, way: str
) -> None:
    if secret == "********":
        desk.path.write_text('{"models": {"providers": {"openai": {}}}}')
    with pytest.raises(ConfigError) as refused:
        desk.editor.typed(desk.stamp, {key: secret})
    assert way in str(refused.value)
    assert secret == "********" or secret not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("channels.telegram.token", "123456:" + "b" * 35, "TELEGRAM_BOT_TOKEN"),
        ("models.providers.openai.api_key", "sk-other-key-of-somebody", "MODELS_PROVIDERS_OPENAI_API_KEY"),
        (
            "tools.mcp",
            '{"my-nas": {"url": "https://x.example", "headers": {"X-Api-Key": "hush-hush"}}}',
            "TOOLS_MCP_MY_NAS_HEADERS_X_API_KEY",
        ),
    ],
)
async def test_a_secret_that_is_typed_in_is_to_be_stored_and_referred_to(
    desk: Desk, key: str, value: str, name: str
) -> None:
    wanted = desk.editor.typed(desk.stamp, {key: value})
    [typed] = wanted.typed
    assert (typed.name, typed.rotates) == (name, False)
    assert f'"$secret:{typed.name}"' in wanted.text
    assert typed.value not in wanted.text + wanted.shown + wanted.difference + repr(wanted)
    assert desk.editor.stamp_of(wanted) != desk.editor.stamp_of(replace(wanted, typed=()))


async def test_over_a_reference_to_a_secret_it_is_that_ones_new_value(desk: Desk) -> None:
    desk.secrets = lambda _name: "old-value"
    desk.path.write_text('{"models": {"providers": {"openai": {"api_key": "$secret:MINE"}}}}')
    wanted = desk.editor.typed(desk.stamp, {"models.providers.openai.api_key": "new-value"})
    assert [(each.name, each.value, each.rotates) for each in wanted.typed] == [("MINE", "new-value", True)]
    assert wanted.sections == {}


async def test_the_document_hides_secrets_and_keeps_them(desk: Desk) -> None:
    shown = desk.editor.form().text
    assert KEY not in shown
    assert '"$env:BOT"' in shown
    document = json.loads(shown)
    assert document["models"]["providers"]["openai"]["api_key"] == "********"
    document["logs"] = {"keep": "90d"}
    wanted = desk.editor.written(desk.stamp, json.dumps(document))
    assert KEY not in wanted.difference + wanted.shown + repr(wanted)
    await desk.editor.save(wanted)
    assert desk.written["models"] == {"providers": {"openai": {"api_key": KEY}}}


async def test_a_hidden_secret_goes_nowhere_else(desk: Desk) -> None:
    document = json.loads(desk.editor.form().text)
    document["models"]["providers"]["groq"] = {"api_key": "********"}
    with pytest.raises(ConfigError, match=r"models\.providers\.groq\.api_key: a secret isn't saved from here"):
        desk.editor.written(desk.stamp, json.dumps(document))


async def test_a_secret_may_become_a_reference_or_go(desk: Desk) -> None:
    await desk.save(models__providers__openai__api_key="$env:BOT")
    assert desk.written["models"] == {"providers": {"openai": {"api_key": "$env:BOT"}}}
    await desk.save(models__providers__openai__api_key="")
    assert desk.written["models"] == {"providers": {"openai": {}}}


async def test_a_folder_without_room_for_it_leaves_the_file_and_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = desk.editor.typed(desk.stamp, {"heartbeat.every": "1h"})

    def refuse(self: Path, target: Path) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(Unwritable, match="cannot be written: Device or resource busy"):
        await desk.editor.save(wanted)
    assert sorted(each.name for each in desk.path.parent.iterdir()) == ["config.json", "data"]
    assert desk.path.read_text(encoding="utf-8") == WRITTEN


async def test_a_broken_file_is_shown_as_broken(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    desk = desk_in(tmp_path, {})
    desk.path.write_text('{"owner": ')
    form = desk.editor.form()
    assert (form.fields, "line 1, column" in form.problem) == ((), True)


async def test_no_file_is_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    desk = desk_in(tmp_path, {})
    desk.path.unlink()
    assert desk.editor.form().text == "{}\n"
    assert desk.editor.typed(desk.stamp, {"logs.keep": "90d"}).before is None
