import pytest

from gateway.app.checks.channels import check_channels
from tests.app.checks.contexts import Examine, served, told
from tests.fakes.telegram import FakeTelegram

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
