from datetime import UTC, datetime

import pytest

from gateway.domain.work.schedules import Once, Recurring, ScheduleDefinition
from gateway.timetable.wording import in_words, local, moment

NINE = datetime(2026, 11, 22, 8, tzinfo=UTC)


def test_a_moment_is_told_on_the_clock_of_its_zone() -> None:
    assert moment(NINE, "Europe/Berlin") == "Sun 22 Nov 2026 09:00 Europe/Berlin"
    assert moment(NINE.replace(day=1, second=30), "UTC") == "Sun 1 Nov 2026 08:00:30 UTC"


def test_what_is_valid_no_more_is_told_nevertheless() -> None:
    assert local(NINE, "Mars/Olympus") == NINE
    assert moment(NINE, "Mars/Olympus") == "Sun 22 Nov 2026 08:00 UTC"
    assert in_words(ScheduleDefinition("n", "p", Once(NINE), "Mars/Olympus")) == "once, Sun 22 Nov 2026 08:00 UTC"
    for fields in ("every day", "0 9 24 13 *", ""):
        told = in_words(ScheduleDefinition("n", "p", Recurring(fields), "Mars/Olympus"))
        assert told == f"by cron {fields} Mars/Olympus, which is not valid"


def test_a_single_time_and_none() -> None:
    assert (
        in_words(ScheduleDefinition("n", "p", Once(NINE), "Europe/Berlin"))
        == "once, Sun 22 Nov 2026 09:00 Europe/Berlin"
    )
    assert in_words(ScheduleDefinition("n", "p", None)) == "backlog"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/1 * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0 * * * *", "every hour"),
        ("0 */1 * * *", "every hour"),
        ("5 * * * *", "every hour at minute 5"),
        ("0 */6 * * *", "every 6 hours"),
        ("30 8 * * *", "every day at 08:30"),
        ("0 8,20 * * *", "every day at 08:00 and 20:00"),
        ("30 8 * * 1-5", "every weekday at 08:30"),
        ("30 8 * * Mon-Fri", "every weekday at 08:30"),
        ("0 9 * * 1", "every Monday at 09:00"),
        ("0 9 * * SUN,1,THU", "every Monday, Thursday and Sunday at 09:00"),
        ("0 9 * * 0", "every Sunday at 09:00"),
        ("0 9 * * 7", "every Sunday at 09:00"),
        ("0 9 1 * *", "every month on the 1st at 09:00"),
        ("0 9 22 * *", "every month on the 22nd at 09:00"),
        ("0 9 13 * *", "every month on the 13th at 09:00"),
        ("0 9 24 12 *", "every year on 24 Dec at 09:00"),
    ],
)
def test_common_shapes_have_words(fields: str, words: str) -> None:
    assert (
        in_words(ScheduleDefinition("n", "p", Recurring(fields), "Europe/Berlin"))
        == f"{words} Europe/Berlin ({fields})"
    )


@pytest.mark.parametrize(
    "fields",
    [
        "*/7 * * * *",
        "0 */5 * * *",
        "*/15 8-18 * * *",
        "0,30 9 * * *",
        "0 9 1 * 1",
        "0 9 * * 1-3",
        "0 9 * 1 *",
        "0 9 1-7 * *",
        "0 9 1 JAN *",
        "0 1,2,3,4,5 * * *",
    ],
)
def test_anything_else_is_told_by_its_fields(fields: str) -> None:
    assert in_words(ScheduleDefinition("n", "p", Recurring(fields), "UTC")) == f"by cron {fields} UTC"
