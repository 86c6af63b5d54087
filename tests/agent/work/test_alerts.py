from datetime import UTC, datetime

from gateway.agent.work.schedules import schedule_failed, schedule_undelivered, schedule_works, trigger_failed
from gateway.domain.work.schedules import Once, Recurring, ScheduleDefinition

SLOT = datetime(2026, 11, 22, 8, tzinfo=UTC)
REMINDER = ScheduleDefinition("Dentist", "Call the dentist.", Once(SLOT), "Europe/Berlin")


def test_a_reminder_that_failed_is_a_reminder_all_the_same() -> None:
    assert schedule_failed(REMINDER, SLOT, "no model answered").text == (
        'The schedule "Dentist", planned for Sun 22 Nov 2026 09:00 Europe/Berlin, failed: no model answered\n\n'
        "It was meant to do this:\nCall the dentist."
    )


def test_of_what_comes_again_the_silence_is_announced() -> None:
    news = ScheduleDefinition("News", "Read the news.", Recurring("0 9 * * *"), "Europe/Berlin")
    assert schedule_failed(news, SLOT, "out of budget").text.endswith(
        "Read the news.\n\nI won't repeat this until it works again."
    )


def test_what_did_not_arrive_is_told_without_its_content() -> None:
    assert schedule_undelivered(REMINDER, SLOT, "blocked").text == (
        'The schedule "Dentist", planned for Sun 22 Nov 2026 09:00 Europe/Berlin, ran, but its '
        "message wasn't delivered: blocked"
    )


def test_that_it_works_again_is_one_line() -> None:
    assert schedule_works(REMINDER).text == 'The schedule "Dentist" works again.'


def test_of_a_trigger_its_source_is_named() -> None:
    assert trigger_failed("ci", "no model answered").text.startswith("What ci sent couldn't be processed: no model")
