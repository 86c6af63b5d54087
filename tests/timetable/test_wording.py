from datetime import UTC, datetime

import pytest

from gateway.domain.work.schedules import Once, Recurring, ScheduleDefinition
from gateway.timetable.wording import cron_notes, in_words, local, moment

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
    ("fields", "words", "note"),
    [
        ("*/7 * * * *", "every day at minute 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour", "anew each hour"),
        ("0 */5 * * *", "every day at minute 0 of the hours 0, 5, 10, 15 and 20", "anew each day"),
        ("*/15 8-18 * * *", "every day at minute 0, 15, 30 and 45 of the hours 8 to 18", ""),
        ("0,30 9 * * *", "every day at 09:00 and 09:30", ""),
        ("0 9 1 * 1", "on the 1st of the month and also every Monday at 09:00", "The first Monday of a month is 1#1"),
        ("0 9 1-7 * mon", "on the 1st to 7th of the month and also every Monday at 09:00", "not only on days"),
        ("0 9 */14 * *", "on the 1st, 15th and 29th of the month at 09:00", "anew each month"),
        ("0 9 */2 * 1", "on the 1st, 3rd, 5th, 7th, 9th, 11th, 13th, 15th, 17th, 19th, 21st, 23rd, 25th, 27th, 29th "
         "and 31st of the month, but only every Monday at 09:00", "anew each month"),
        ("0 9 31 * *", "every month on the 31st at 09:00", "L as the day of month"),
        ("0 9 * * 1-3", "every Monday, Tuesday and Wednesday at 09:00", ""),
        ("0 9 * * 5-7", "every Friday, Saturday and Sunday at 09:00", ""),
        ("0 9 * 1 *", "every day in Jan at 09:00", ""),
        ("0 9 1 JAN,jul *", "on the 1st of the month in Jan and Jul at 09:00", ""),
        ("0 1,2,3,4,5 * * *", "every day at minute 0 of the hours 1 to 5", ""),
        ("* 9 * * *", "every day every minute of the hours 9", ""),
        ("0 9 L * *", "on the last day of the month at 09:00", ""),
        ("0 9 15,L * *", "on the 15th and last of the month at 09:00", ""),
        ("0 9 * * 7#1,L5", "on the first Sunday and last Friday of the month at 09:00", ""),
        ("0 9 * * 1%2", "every second Monday at 09:00", "a week later than shown, write 1%2+1."),
        ("0 9 * * 1,4%3+2", "every 3 weeks on Monday and Thursday at 09:00", "write 1,4%3."),
        ("0 0 22-2 * *", "on the 1st, 2nd and 22nd to 31st of the month at 00:00", ""),
    ],
)  # fmt: skip
def test_all_fields_are_told_in_words_with_what_is_unexpected(fields: str, words: str, note: str) -> None:
    assert in_words(ScheduleDefinition("n", "p", Recurring(fields), "UTC")) == f"{words} UTC ({fields})"
    assert [note in each for each in cron_notes(fields)] == [True] * bool(note)
