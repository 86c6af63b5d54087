import asyncio
import json
import socket

import pytest

from gateway.app.checks.connections import check_channels, check_model, check_workspace
from tests.app.checks.contexts import Examine, served, told
from tests.fakes.openai_server import FakeModels
from tests.fakes.s3 import new_bucket
from tests.fakes.s3_fixtures import s3
from tests.fakes.telegram import FakeTelegram


def at(url: str, *fallbacks: str) -> str:
    chain = ", ".join(f'"{name}"' for name in fallbacks)
    return (
        f'{{"models": {{"primary": "openai/one", "fallbacks": [{chain}],'
        f' "providers": {{"openai": {{"api_key": "sk-hush-hush-hush", "base_url": "{url}"}}}}}}}}'
    )


@pytest.fixture
def nobody() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def test_without_a_model_it_says_how_to_connect_one(examine: Examine) -> None:
    (finding,) = examine(check_model, live=True)

    assert (finding.level, "OPENAI_API_KEY" in finding.fix) == ("warn", True)


def test_a_model_without_its_key_is_warned_about(examine: Examine) -> None:
    (finding,) = examine(check_model, '{"models": {"primary": "openai/gpt-5.6", "fallbacks": ["guide/built-in"]}}')

    assert (finding.level, finding.text) == ("warn", "openai/gpt-5.6 needs a key")
    assert finding.fix.startswith("set OPENAI_API_KEY; create one at https://")


def test_a_model_with_its_key_is_fine_and_the_key_is_not_shown(examine: Examine) -> None:
    (chosen,) = examine(check_model, OPENAI_API_KEY="sk-hush")
    (named,) = examine(check_model, '{"models": {"primary": "openai/gpt-5.6"}}', OPENAI_API_KEY="sk-hush")

    assert chosen.level == named.level == "ok"
    assert "OPENAI_API_KEY" in chosen.text
    assert "hush" not in chosen.text + named.text


def test_a_live_model_says_how_long_it_took(examine: Examine) -> None:
    with served(FakeModels()) as models:
        ((level, text),) = told(examine(check_model, at(models.base_url), live=True))

    assert (level, text.startswith("openai/one answered in ")) == ("ok", True)


def test_a_live_model_that_cannot_be_reached_fails_with_its_error_in_a_line(examine: Examine, nobody: str) -> None:
    (finding,) = examine(check_model, at(nobody), live=True)

    assert (finding.level, finding.text.startswith("openai/one: ")) == ("fail", True)
    assert "\n" not in finding.text
    assert "can reach the provider" in finding.fix


def test_a_fallback_that_had_to_answer_is_warned_about(examine: Examine, nobody: str) -> None:
    (finding,) = examine(check_model, at(nobody, "guide/built-in"), live=True)

    assert finding.level == "warn"
    assert finding.text.startswith("guide/built-in answered in ")
    assert "after openai/one: " in finding.text


TOKEN = "424242:" + "A" * 35


def telegram(token: str = TOKEN, more: str = "") -> str:
    return f'{{"channels": {{"telegram": {{"token": "{token}", "allow": ["1"]{more}}}}}}}'


def test_without_a_messenger_it_says_so(examine: Examine) -> None:
    assert told(examine(check_channels)) == [("warn", "no messenger is configured, only the web page and the terminal")]


def test_each_messenger_is_a_finding(examine: Examine) -> None:
    telegram_and_slack = '"telegram": {"token": "123456:abcdef", "allow": ["1"]}, "slack": {"enabled": false}'
    text = f'{{"channels": {{{telegram_and_slack}, "telegarm": {{}}}}}}'

    findings = told(examine(check_channels, text))

    assert [level for level, _ in findings] == ["ok", "ok", "fail"]
    assert findings[0][1].startswith("telegram: the settings are valid")
    assert findings[1][1] == "slack: switched off"
    assert "did you mean telegram?" in findings[2][1]


def test_a_token_that_is_none_fails_without_asking(examine: Examine) -> None:
    (finding,) = examine(check_channels, telegram("hush"))

    assert finding.level == "fail"
    assert "channels.telegram.token: not a bot token" in finding.text
    assert "hush" not in finding.text


def test_a_messenger_open_to_anyone_is_warned_about(examine: Examine) -> None:
    (finding,) = examine(check_channels, telegram(more=', "access": "open"'))

    assert (finding.level, finding.text.endswith("anyone may talk to it")) == ("warn", True)


def test_a_live_platform_tells_who_we_are_and_no_update_is_taken(examine: Examine) -> None:
    with served(FakeTelegram()) as fake:
        findings = told(examine(check_channels, telegram(more=f', "api_base": "{fake.url}"'), live=True))
        asked = [method for method, _ in fake.calls]

    assert findings == [("ok", "telegram: connected as @fake_bot")]
    assert asked == ["getme"]


@pytest.mark.parametrize("there", [True, False])
def test_a_platform_that_refuses_or_is_away_fails(examine: Examine, there: bool) -> None:
    with served(FakeTelegram()) as fake:
        fake.revoked = there
        base = fake.url if there else "http://127.0.0.1:1"
        (finding,) = examine(check_channels, telegram(more=f', "api_base": "{base}"'), live=True)

    assert finding.level == "fail"
    assert ("revoked" if there else "cannot connect") in finding.text
    assert "channels.telegram" in finding.fix
    assert TOKEN not in finding.text + finding.fix


__all__ = ["s3"]


def config(endpoint: str, bucket: str, **more: object) -> str:
    store = {"url": f"s3://{bucket}", "endpoint": endpoint, "access_key": "k", "secret_key": "hush", **more}
    return json.dumps({"workspace": store, "net": {"private_allow": ["127.0.0.1"]}})


def test_without_a_store_there_is_nothing_to_say(examine: Examine) -> None:
    assert examine(check_workspace, "{}", live=True) == []


def test_it_is_tried_with_live_only(examine: Examine, s3: str) -> None:
    (known,) = examine(check_workspace, config(s3, "files"))
    assert (known.level, known.text) == ("ok", f"synchronised with {s3}/files; `doctor --live` tries it")
    (missing,) = examine(check_workspace, config(s3, "nowhere"), live=True)
    assert (missing.level, "there is no such bucket" in missing.text) == ("fail", True)
    (works,) = examine(check_workspace, config(s3, asyncio.run(new_bucket(s3))), live=True)
    assert (works.level, works.text.endswith("which works")) == ("ok", True)


@pytest.mark.parametrize("lacking", ["access_key", "secret_key"])
def test_keys_that_are_missing_are_named(examine: Examine, lacking: str) -> None:
    (finding,) = examine(check_workspace, config("https://s3.example.com", "files", **{lacking: None}))
    assert (finding.level, finding.fix) == ("fail", "set all three")
