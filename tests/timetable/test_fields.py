import re

import pytest

from gateway.timetable.fields import checked


@pytest.mark.parametrize(
    "text",
    [
        "* * * * *",
        "*/5 0-23/2 1,15 JAN-mar 1-7/2",
        "0 22-6 * * FRI-SUN",
        "5/15 0 1 1 7",
        "00 09 01 12 SUN",
    ],
)
def test_takes_numbers_names_lists_ranges_and_steps(text: str) -> None:
    assert checked(text) == text


def test_is_kept_with_one_space_between() -> None:
    assert checked("  30 8\t*  * 1-5\n") == "30 8 * * 1-5"


@pytest.mark.parametrize(
    "text", ["", "@daily", "30 8 * *", "0 30 8 * * *", "0 0 0 1 1 ? 2027", "1," * 200 + "1 * * * *"]
)
def test_anything_but_five_fields_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^needs exactly 5 fields, .*\(no seconds, no @names\), such as"):
        checked(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("60 8 * * *", 'minute "60" is out of range: use * or 0-59, with lists (,), ranges (-) and steps (/)'),
        ("0 24 * * *", 'hour "24" is out of range: use * or 0-23, with lists (,), ranges (-) and steps (/)'),
        ("0 8 0 * *", 'day of month "0" is out of range: use * or 1-31, with lists (,), ranges (-) and steps (/)'),
        ("0 8 * 1-13 *", 'month "13" is out of range: use * or 1-12 or names such as APR, with lists (,), ranges (-)'),
        ("0 8 * * 8", 'day of week "8" is out of range: use * or 0-7 or names such as FRI, with lists (,), ranges'),
        ("0 8 * * JAN", 'day of week "JAN" is out of range'),
        ("0 MON * * *", 'hour "MON" is out of range'),
        ("0 8 L * *", 'day of month "L" is not understood: use * or 1-31'),
        ("0 8 15W * *", 'day of month "15W" is not understood'),
        ("0 8 * * 1#2", 'day of week "1#2" is not understood'),
        ("0 8 ? * 1", 'day of month "?" is not understood'),
        ("H 8 * * *", 'minute "H" is not understood'),
        ("R(0-5) 8 * * *", 'minute "R(0-5)" is not understood'),
        ("-5 8 * * *", 'minute "-5" is not understood'),
        ("1,,2 8 * * *", 'minute "" is not understood'),
        ("٣ 8 * * *", 'minute "٣" is not understood'),
        ("*-5 8 * * *", 'minute "*-5" is not understood'),
        ("0 9-9 * * *", 'hour "9-9" is not a range: write "9"'),
        ("*/0 * * * *", 'minute "*/0": a step must be 1-59'),
        ("*/90 * * * *", 'minute "*/90": a step must be 1-59, and restarts at 0 each time'),
        ("0 22-6/2 * * *", 'hour "22-6/2" wraps around: write "22-23/2" and the rest separately'),
    ],
)
def test_what_is_wrong_is_told_with_what_would_be_right(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)) as refused:
        checked(text)

    assert "\n" not in str(refused.value)
