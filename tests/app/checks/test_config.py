from pathlib import Path

import pytest

from gateway.app.checks.config import check_config, check_failpoint
from tests.app.checks.contexts import Examine, told


def test_a_wrong_config_is_told_line_by_line(examine: Examine) -> None:
    findings = examine(check_config, '{"web": {"prot": 1}, "budgets": {"day_usd": -1}}')

    assert [finding.level for finding in findings] == ["fail", "fail"]
    assert any("did you mean web.port?" in finding.text for finding in findings)
    assert findings[0].fix.endswith("`supaclaw config validate` checks it again")


def test_a_missing_config_is_fine(examine: Examine) -> None:
    ((level, text),) = told(examine(check_config))

    assert level == "ok"
    assert text.endswith("config.json, the defaults are used")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ('{"models": {"providers": {"openai": {"api_key": "hush"}}}}', "warn"),
        ('{"models": {"providers": {"openai": {"api_key": "$env:KEY"}}}}', "ok"),
        ('{"database": {"url": "postgresql://me:hush@host/name"}}', "warn"),
        ('{"database": {"url": "postgresql://host/name"}}', "ok"),
        ('{"channels": {"telegram": {"token": "123456:abc"}}}', "warn"),
        ("{}", "ok"),
    ],
)
def test_secrets_in_a_file_others_can_read_are_warned_about(
    examine: Examine, tmp_path: Path, text: str, level: str
) -> None:
    examine(check_config, text, KEY="x")
    (tmp_path / "config.json").chmod(0o644)
    (finding,) = examine(check_config, KEY="x")

    assert finding.level == level
    assert ("chmod 600" in finding.fix) == (level == "warn")
    assert "hush" not in finding.text + finding.fix

    (tmp_path / "config.json").chmod(0o600)
    assert examine(check_config, KEY="x")[0].level == "ok"


def test_an_armed_failpoint_is_warned_about_and_a_wrong_one_fails(examine: Examine) -> None:
    assert examine(check_failpoint) == []
    assert told(examine(check_failpoint, SUPACLAW_FAIL="turn.claimed")) == [
        ("warn", "the gateway will kill itself at turn.claimed")
    ]
    assert examine(check_failpoint, SUPACLAW_FAIL="turn.claim")[0].level == "fail"
