from datetime import datetime
from pathlib import Path

from gateway.domain.memory.imports import Damaged
from tests.importers.reads import BERLIN, damage, messages, read, sessions
from tests.importers.test_markdown import written

LOG = """# 2026-03-01

## 23:50

**User** 23:50:10: Good night.
Or is it?

**Assistant** 00:01:05: It is.

## Plan
1. Sleep.

## 09:15 - Standup
- Shipped the door
Human: and now?
"""


def at(day: int, hour: int, minute: int, second: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, minute, second, tzinfo=BERLIN)


def test_headings_with_a_time_begin_sessions_and_named_lines_messages(tmp_path: Path) -> None:
    found = read("daily-logs", written(tmp_path, "2026-03-01.md", LOG))

    assert [(each.key, each.started_at) for each in sessions(found)] == [
        ("2026-03-01 23:50 1", at(1, 23, 50)),
        ("2026-03-01 09:15 1", at(2, 9, 15)),
    ]
    assert [(each.role, each.text, each.at) for each in messages(found)] == [
        ("user", "Good night.\nOr is it?", at(1, 23, 50, 10)),
        ("assistant", "It is.\n\n## Plan\n1. Sleep.", at(2, 0, 1, 5)),
        ("user", "Standup\n- Shipped the door", at(2, 9, 15)),
        ("user", "and now?", None),
    ]


def test_a_file_without_times_is_one_session_of_notes(tmp_path: Path) -> None:
    written(tmp_path, "2026-03-02-trip.md", "Left at dawn.\n\n## Weather\nRain.\n")
    written(tmp_path, "notes.md", "none of the logs")

    found = read("daily-logs", tmp_path)

    assert len(sessions(found)) == 1
    assert [(each.role, each.text) for each in messages(found)] == [
        ("user", "Left at dawn."),
        ("user", "Weather\nRain."),
    ]


def test_a_file_without_a_date_in_its_name_is_told(tmp_path: Path) -> None:
    found = read("daily-logs", written(tmp_path, "diary.md", "Left at dawn."))

    assert damage(found) == [Damaged("diary.md", "its name is not a date; rename it, such as 2026-03-01.md")]
