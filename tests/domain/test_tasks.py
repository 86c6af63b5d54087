from dataclasses import replace
from uuid import uuid4

from gateway.domain.ids import PrincipalId, SessionId, TaskId
from gateway.domain.work.tasks import BEAT_SECONDS, LEASE_SECONDS, SLOTS, Claim, Lane, backoff

RUN = Claim(TaskId(uuid4()), 1, "chat", Lane.CHAT, PrincipalId(uuid4()), SessionId(uuid4()), "default", 1, 3)


def test_failed_attempts_wait_longer_and_longer_but_never_more_than_a_minute() -> None:
    assert [backoff(n) for n in (0, 1, 2, 3, 5, 6, 40)] == [0, 1, 3, 7, 31, 60, 60]


def test_a_run_is_exhausted_once_its_attempts_are_more_than_allowed() -> None:
    assert [replace(RUN, attempts=n).exhausted for n in (1, 3, 4)] == [False, False, True]


def test_three_deaths_alone_exhaust_it_too_and_each_run_after_that_is_one_more_give_up() -> None:
    runs = [replace(RUN, alone=n) for n in (-1, 0, 1, 2, 3, 5)]
    assert [(run.suspect, run.exhausted, run.give_ups) for run in runs] == [
        (False, False, 0),
        (False, False, 0),
        (True, False, 0),
        (True, False, 0),
        (True, True, 1),
        (True, True, 3),
    ]


def test_every_lane_has_slots() -> None:
    assert set(SLOTS) == set(Lane)


def test_a_lease_outlives_several_missed_beats() -> None:
    assert LEASE_SECONDS >= 3 * BEAT_SECONDS
