import os
import time
from pathlib import Path

from gateway.cli.checks.folders import check_checkpoints, check_data, check_health, check_keys, check_workspace
from gateway.config.instance import hold_instance
from tests.cli.checks.patients import Examine, put, told

OFF = '{"checkpoints": {"every": null}}'


def test_a_data_folder_others_can_look_into_is_warned_about(examine: Examine, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    (finding,) = examine(check_data)
    assert (finding.level, finding.fix) == ("warn", f"chmod 700 {tmp_path / 'data'}")

    (tmp_path / "data").chmod(0o700)
    assert examine(check_data)[0].level == "ok"


def test_a_data_folder_that_is_not_there_yet_is_fine(examine: Examine) -> None:
    ((level, text),) = told(examine(check_data))

    assert (level, text.endswith("will be made by the first start")) == ("ok", True)


def test_a_file_in_the_place_of_a_folder_fails(examine: Examine, tmp_path: Path) -> None:
    put(tmp_path / "data" / "workspace")
    put(tmp_path / "data" / "checkpoints")

    assert told(examine(check_workspace)) == [("fail", f"{tmp_path}/data/workspace is a file, not a folder")]
    assert told(examine(check_checkpoints)) == [("fail", f"{tmp_path}/data/checkpoints is a file, not a folder")]
    (finding,) = examine(check_data, SUPACLAW_DATA=str(tmp_path / "data" / "workspace"))
    assert (finding.level, "set SUPACLAW_DATA" in finding.fix) == ("fail", True)


def test_a_workspace_that_can_be_written_is_fine(examine: Examine, tmp_path: Path) -> None:
    assert "will be made" in examine(check_workspace)[0].text

    (tmp_path / "data" / "workspace").mkdir(parents=True)
    assert told(examine(check_workspace)) == [("ok", f"{tmp_path}/data/workspace")]


def test_keys_are_counted_when_all_is_well(examine: Examine, tmp_path: Path) -> None:
    assert told(examine(check_keys)) == [("ok", "none yet, the first start makes them")]

    put(tmp_path / "data" / "keys" / "local-token", "claw_x")
    put(tmp_path / "data" / "keys" / "journal", "x" * 32)
    assert told(examine(check_keys)) == [("ok", f"2 in {tmp_path}/data/keys, readable by this user only")]


def test_every_key_that_is_open_broken_or_unreadable_is_named(examine: Examine, tmp_path: Path) -> None:
    keys = tmp_path / "data" / "keys"
    put(keys / "local-token", "claw_hush", mode=0o644)
    put(keys / "journal", "short")
    put(keys / "postgres.supaclaw", "")
    (keys / "postgres.superuser").mkdir()

    findings = examine(check_keys)

    assert told(findings) == [
        ("fail", f"{keys}/journal is not what it was"),
        ("warn", f"other users can read {keys}/local-token"),
        ("fail", f"{keys}/postgres.supaclaw is not what it was"),
        ("fail", f"{keys}/postgres.superuser cannot be read: Is a directory"),
    ]
    assert findings[1].fix == f"chmod 600 {keys}/local-token"


def test_journals_without_the_key_that_signed_them_are_warned_about(examine: Examine, tmp_path: Path) -> None:
    put(tmp_path / "data" / "keys" / "local-token", "claw_x")
    assert [level for level, _ in told(examine(check_keys))] == ["ok"]

    put(tmp_path / "data" / "workspace" / "sessions" / "2026-01-01" / "10-00-00.md")
    assert [level for level, _ in told(examine(check_keys))] == ["ok", "warn"]


def test_checkpoints_are_off_not_yet_or_there(examine: Examine, tmp_path: Path) -> None:
    assert examine(check_checkpoints, OFF)[0].level == "warn"
    assert told(examine(check_checkpoints, "{}")) == [("ok", "none yet; one every 10m while the gateway runs")]

    (tmp_path / "data" / "checkpoints").mkdir(parents=True)
    assert told(examine(check_checkpoints)) == [("ok", f"every 10m, in {tmp_path}/data/checkpoints")]


def test_a_gateway_that_does_not_say_that_it_lives_fails(examine: Examine, tmp_path: Path) -> None:
    assert "no gateway runs here" in examine(check_health)[0].text

    data = tmp_path / "data"
    with hold_instance(data):
        assert examine(check_health)[0].level == "ok"
        long_ago = time.time() - 300
        os.utime(data / "gateway.pid", (long_ago, long_ago))
        (finding,) = examine(check_health)
        assert (finding.level, f"(pid {os.getpid()}) has not been well since" in finding.text) == ("fail", True)

        put(data / "health", "now")
        assert examine(check_health)[0].level == "ok"
