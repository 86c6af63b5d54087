from datetime import date, timedelta
from pathlib import Path

import pytest

from gateway.logs import prune

TODAY = date(2026, 3, 10)
SESSION = "0b0c1111-1111-4111-8111-111111111111"


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


def days(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_without_a_limit_everything_is_kept(tmp_path: Path) -> None:
    put(tmp_path / "gateway-1999-01-01.log")

    assert prune(tmp_path, None, TODAY) == 0
    assert days(tmp_path) == ["gateway-1999-01-01.log"]


@pytest.mark.parametrize(
    ("keep", "oldest"),
    [
        (timedelta(hours=1), "gateway-2026-03-09.log"),
        (timedelta(days=1), "gateway-2026-03-09.log"),
        (timedelta(days=2), "gateway-2026-03-08.log"),
        (timedelta(days=90), "gateway-2026-03-05.log"),
    ],
)
def test_nothing_younger_than_the_limit_goes(tmp_path: Path, keep: timedelta, oldest: str) -> None:
    for day in range(5, 11):
        put(tmp_path / f"gateway-2026-03-{day:02}.log")

    prune(tmp_path, keep, TODAY)

    assert days(tmp_path)[0] == oldest
    assert days(tmp_path)[-1] == "gateway-2026-03-10.log"


def test_old_files_of_sessions_go_and_folders_left_empty_with_them(tmp_path: Path) -> None:
    old = put(tmp_path / "sessions" / SESSION / "2026-01-01.log")
    young = put(tmp_path / "sessions" / SESSION.replace("0b0c", "0b0d") / "2026-03-09.log")
    put(young.with_name("2026-01-01.log"))

    assert prune(tmp_path, timedelta(days=7), TODAY) == 2
    assert not old.parent.exists()
    assert days(young.parent) == ["2026-03-09.log"]


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    elsewhere = put(tmp_path / "elsewhere" / "2026-01-01.log")
    logs = tmp_path / "logs"
    theirs = [
        put(logs / name)
        for name in (
            "postgres.log",
            "gateway-2026-01-01.log.gz",
            "gateway-2026-13-01.log",
            "2026-01-01.log",
            "sessions/2026-01-01.log",
            "sessions/notes/2026-01-01.log",
            f"sessions/{SESSION}/notes.txt",
            f"sessions/{SESSION}/gateway-2026-01-01.log",
        )
    ]
    (logs / "sessions" / SESSION.replace("0b0c", "0b0d")).symlink_to(elsewhere.parent)
    (logs / "gateway-2026-01-02.log").symlink_to(elsewhere)
    (logs / "gateway-2026-01-03.log").mkdir()

    assert prune(logs, timedelta(days=1), TODAY) == 0
    assert all(path.exists() for path in (elsewhere, *theirs, logs / "gateway-2026-01-02.log"))


def test_a_folder_that_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    assert prune(tmp_path / "none", timedelta(days=1), TODAY) == 0
