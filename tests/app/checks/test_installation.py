from functools import partial
from pathlib import Path

import pytest

from gateway.app.checks.installation import check_config, check_disk, check_failpoint, check_folders, check_keys
from tests.app.checks.contexts import Examine, put, told


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


GIB = 1024**3


def test_folders_that_are_not_there_yet_are_fine(examine: Examine, tmp_path: Path) -> None:
    assert told(examine(check_folders)) == [
        ("ok", f"{tmp_path}/data will be created by the first start"),
        ("ok", f"{tmp_path}/data/workspace will be created by the first start"),
    ]


def test_a_data_folder_others_can_look_into_is_warned_about(examine: Examine, tmp_path: Path) -> None:
    (tmp_path / "data" / "workspace").mkdir(parents=True)
    (tmp_path / "data").chmod(0o755)
    assert next((each.level, each.fix) for each in examine(check_folders)) == ("warn", f"chmod 700 {tmp_path / 'data'}")

    (tmp_path / "data").chmod(0o700)
    assert told(examine(check_folders)) == [("ok", f"{tmp_path}/data"), ("ok", f"{tmp_path}/data/workspace")]


def test_a_file_in_the_place_of_a_folder_fails(examine: Examine, tmp_path: Path) -> None:
    file = put(tmp_path / "data" / "workspace")

    _, finding = examine(check_folders)
    assert (finding.level, finding.text) == ("fail", f"{file} is not a writable folder")
    assert "set SUPACLAW_WORKSPACE" in finding.fix
    assert "set SUPACLAW_DATA" in examine(check_folders, SUPACLAW_DATA=str(file))[0].fix


def test_keys_are_counted_when_all_is_well(examine: Examine, tmp_path: Path) -> None:
    assert told(examine(check_keys)) == [("ok", f"0 in {tmp_path}/data/keys")]

    put(tmp_path / "data" / "keys" / "journal", "x" * 32)
    assert told(examine(check_keys)) == [("ok", f"1 in {tmp_path}/data/keys")]


def test_every_key_that_is_open_or_empty_is_named(examine: Examine, tmp_path: Path) -> None:
    keys = tmp_path / "data" / "keys"
    put(keys / "local-token", "claw_hush", mode=0o644)
    put(keys / "postgres.supaclaw", "")

    findings = examine(check_keys)

    assert told(findings)[:-1] == [
        ("warn", f"other users can read {keys}/local-token"),
        ("fail", f"{keys}/postgres.supaclaw is empty or cannot be read"),
    ]
    assert findings[0].fix == f"chmod 600 {keys}/local-token"


def test_journals_without_the_key_that_signed_them_are_warned_about(examine: Examine, tmp_path: Path) -> None:
    put(tmp_path / "data" / "workspace" / "sessions" / "2026-01-01" / "10-00-00.md")

    assert [level for level, _ in told(examine(check_keys))] == ["warn", "ok"]


@pytest.mark.parametrize(("left", "level"), [(10 * GIB, "ok"), (GIB // 2, "warn"), (GIB // 100, "fail")])
def test_little_room_is_told_once_a_file_system(examine: Examine, tmp_path: Path, left: int, level: str) -> None:
    (finding,) = examine(partial(check_disk, free=lambda _: left))

    assert (finding.level, bool(finding.fix)) == (level, level != "ok")
    assert finding.text == f"{left / GIB:.1f} GiB free at {tmp_path}"


def test_the_room_is_that_of_this_machine(examine: Examine) -> None:
    assert " GiB free at " in examine(check_disk)[0].text
