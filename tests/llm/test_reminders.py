"""Plain words for reminders, each read exactly or not at all."""

from collections.abc import Mapping
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.llm.providers.guide import REMINDER_FORMS, about_reminders, describe_result, parse_reminder

BERLIN = ZoneInfo("Europe/Berlin")
SATURDAY = datetime(2026, 11, 21, 22, 2, tzinfo=UTC).astimezone(BERLIN)
"""23:02 on the wall."""


def once(what: str, words: str, at: str) -> Mapping[str, str]:
    name, prompt = f"{what}, {words}", f"Remind the user: {what}"
    return {"action": "add", "name": name, "prompt": prompt, "schedule_type": "once", "run_at": at}


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("remind me in 20 minutes to call Ada", "in 20 minutes"),
        ("Remind me in an hour to call Ada.", "in 1 hour"),
        ("in 2 days remind me to call Ada", "in 2 days"),
        ("please remind me to call Ada in 1 week", "in 1 week"),
    ],
)
def test_after_a_while_is_counted_by_the_tool(said: str, at: str) -> None:
    understood = parse_reminder(said, SATURDAY)
    assert understood is not None
    assert (understood["run_at"], understood["prompt"]) == (at, "Remind the user: call Ada")


@pytest.mark.parametrize(
    ("said", "words", "at"),
    [
        ("remind me tomorrow at 9 to call Ada", "tomorrow at 9", "2026-11-22T09:00"),
        ("tomorrow at 9 remind me to call Ada", "tomorrow at 9", "2026-11-22T09:00"),
        ("remind me at 9 tomorrow to call Ada", "at 9 tomorrow", "2026-11-22T09:00"),
        ("remind me to call Ada tomorrow at 9", "tomorrow at 9", "2026-11-22T09:00"),
        ("Remind me  to call Ada\ntomorrow at 9:30pm!", "tomorrow at 9:30pm", "2026-11-22T21:30"),
        ("remind me today at 23:30 to call Ada", "today at 23:30", "2026-11-21T23:30"),
        ("remind me today at 9 to call Ada", "today at 9", "2026-11-21T09:00"),
        ("remind me at 23:30 to call Ada", "at 23:30", "2026-11-21T23:30"),
        ("remind me at 18.30 to call Ada", "at 18.30", "2026-11-22T18:30"),
        ("remind me at 12 am to call Ada", "at 12 am", "2026-11-22T00:00"),
        ("remind me on Monday at 9 to call Ada", "on monday at 9", "2026-11-23T09:00"),
        ("remind me saturday at 9 to call Ada", "saturday at 9", "2026-11-28T09:00"),
        ("on saturday at 23:03 remind me: call Ada", "on saturday at 23:03", "2026-11-21T23:03"),
    ],
)
def test_a_time_is_meant_on_the_clock_of_whoever_says_it(said: str, words: str, at: str) -> None:
    assert parse_reminder(said, SATURDAY) == once("call Ada", words, at)


@pytest.mark.parametrize(
    ("said", "cron"),
    [
        ("every day at 8:30 stretch", "30 8 * * *"),
        ("Every weekday at 8:30am: stretch", "30 8 * * 1-5"),
        ("every sunday at 18 remind me to stretch", "0 18 * * 0"),
        ("remind me every monday at 12pm to stretch", "0 12 * * 1"),
        ("remind me to stretch at 7 every friday", "0 7 * * 5"),
    ],
)
def test_again_and_again(said: str, cron: str) -> None:
    understood = parse_reminder(said, SATURDAY)
    assert understood is not None
    assert (understood["schedule_type"], understood["cron_expr"]) == ("recurring", cron)
    assert understood["prompt"] == "Remind the user: stretch"


def test_the_time_it_is_over_does_not_end_in_the_words() -> None:
    understood = parse_reminder("remind me to be at 5 Main Street in 20 minutes", SATURDAY)
    assert understood is not None
    assert understood["prompt"] == "Remind the user: be at 5 Main Street"


@pytest.mark.parametrize(
    "said",
    [
        "remind me to call Ada",
        "remind me tomorrow to call Ada",
        "remind me at 25 to call Ada",
        "remind me at 9:60 to call Ada",
        "remind me at 13pm to call Ada",
        "remind me at 0am to call Ada",
        "remind me in a moment to call Ada",
        "remind me tomorrow at 9",
        "every day at 8:30",
        "every month at 8:30 pay the rent",
        "remind me today at 9 tomorrow to call Ada",
    ],
)
def test_what_is_not_one_of_the_forms_is_not_guessed_at(said: str) -> None:
    assert parse_reminder(said, SATURDAY) is None
    assert about_reminders(said)


@pytest.mark.parametrize("said", ["my reminders", "list my reminders", "Show me all my reminders!", "reminders?"])
def test_they_are_listed(said: str) -> None:
    assert parse_reminder(said, SATURDAY) == {"action": "list"}


@pytest.mark.parametrize("said", ["hello", "what is the weather?", "I never forget", ""])
def test_other_words_are_not_about_them(said: str) -> None:
    assert parse_reminder(said, SATURDAY) is None
    assert not about_reminders(said)


def test_each_form_that_is_told_is_understood() -> None:
    for form in REMINDER_FORMS.splitlines()[1:]:
        assert parse_reminder(form.removeprefix("- ").replace("…", "call Ada"), SATURDAY), form


@given(st.text() | st.from_regex(r"(remind me|every) (in|at|monday at) [0-9]{1,4}:?[0-9]{0,2}(am|pm)? to .*"))
def test_whatever_is_said_it_does_not_fail(said: str) -> None:
    understood = parse_reminder(said, SATURDAY)
    assert understood is None or understood["action"] in {"add", "list"}


def test_what_became_of_a_call_is_told_in_words() -> None:
    row = '"name": "call Ada, tomorrow at 9", "next_run": "Sun 22 Nov 2026 09:00 Europe/Berlin", "in": "10 hours"'
    noted = "Noted: call Ada, tomorrow at 9. Next: Sun 22 Nov 2026 09:00 Europe/Berlin, in 10 hours."
    assert describe_result(f"{{{row}}}") == noted
    assert describe_result(f'{{{row}, "note": "ask them"}}').startswith(
        f"{noted} Your time zone is unknown, so I used UTC"
    )
    assert describe_result('{"error": "refused", "message": "That time has passed."}') == "That time has passed."
    assert describe_result('{"schedules": []}') == "You have no reminders."
    listed = describe_result('{"schedules": [{"id": 3, "name": "pills", "in_words": "once, soon"}], "more": 7}')
    assert listed.splitlines()[:2] == ["- 3: pills (once, soon)", "and 7 more"]
    assert describe_result('{"removed": 3}') == "Done."
    assert describe_result('{"schedules": [{"id": 3, […]') == '{"schedules": [{"id": 3, […]'
