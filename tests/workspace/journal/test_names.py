from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from pathlib import Path

from gateway.workspace.journal import names
from gateway.workspace.journal.names import Seconds, began, filed_path, open_path

AT = datetime(2026, 3, 1, 23, 59, 58, 900_000, tzinfo=UTC)
HERE, THERE = Path("/a"), Path("/b")


def test_a_second_of_utc_names_a_file() -> None:
    assert open_path(AT.astimezone(timezone(timedelta(hours=5)))) == "sessions/2026-03-01/23-59-58.md"
    assert filed_path(AT) == "memory/20260301235958.md"


def test_both_names_tell_the_second() -> None:
    assert began(open_path(AT)) == began(filed_path(AT)) == AT.replace(microsecond=0)


def test_a_burst_is_given_one_second_after_another() -> None:
    seconds = Seconds()
    given = [next(seconds.free(HERE, AT)) for _ in range(1000)]
    assert given == [AT.replace(microsecond=0) + timedelta(seconds=n) for n in range(1000)]


def test_a_second_that_was_refused_is_not_offered_again() -> None:
    seconds = Seconds()
    refused = list(islice(seconds.free(HERE, AT), 3))
    assert next(seconds.free(HERE, AT)) == refused[-1] + timedelta(seconds=1)


def test_each_root_has_seconds_of_its_own() -> None:
    seconds = Seconds()
    assert next(seconds.free(HERE, AT)) == next(seconds.free(THERE, AT))


def test_an_old_conversation_gets_its_own_time() -> None:
    seconds = Seconds()
    next(seconds.free(HERE, AT))
    old = AT - timedelta(days=30)
    assert next(seconds.free(HERE, old)) == old.replace(microsecond=0)


def test_it_remembers_so_many_roots() -> None:
    seconds = Seconds()
    first = next(seconds.free(HERE, AT))
    for number in range(names.ROOTS):
        next(seconds.free(Path(f"/{number}"), AT))
    assert next(seconds.free(HERE, AT)) == first
