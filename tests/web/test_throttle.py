from dataclasses import dataclass

import pytest

from gateway.web.http.errors import Refused
from gateway.web.http.limits import BURST, RateLimiter, Throttle, canonical


@dataclass
class Hand:
    """A clock that only a test moves."""

    at: float = 0.0

    def monotonic(self) -> float:
        return self.at


WRONG = Refused(401, "wrong", "This is not it.")


def test_failures_use_up_patience_and_time_restores_it():
    clock = Hand()
    throttle = Throttle(clock)
    assert [throttle.failed("a", WRONG).status_code for _ in range(int(BURST) + 50)] == [401] * int(BURST) + [429] * 50
    assert throttle.failed("b", WRONG) is WRONG
    clock.at = 2.0
    assert [throttle.failed("a", WRONG).status_code for _ in range(2)] == [401, 429]


@pytest.mark.parametrize(
    ("one", "other"),
    [("::ffff:10.0.0.1", "10.0.0.1"), ("2001:db8::1", "2001:db8::ffff:1"), ("unix", "unix")],
)
def test_one_client_has_one_bucket(one: str, other: str):
    assert canonical(one) == canonical(other)


def test_networks_are_told_apart():
    assert canonical("2001:db8:0:1::1") != canonical("2001:db8:0:2::1")


def test_memory_is_bounded():
    throttle = Throttle(Hand())
    for n in range(10_050):
        throttle.failed(f"client {n}", WRONG)
    assert len(throttle._buckets) == 10_000


def test_a_flood_of_new_clients_does_not_reset_a_busy_one():
    throttle = Throttle(Hand())
    for _ in range(int(BURST)):
        throttle.failed("busy", WRONG)
    for n in range(20_000):
        throttle.failed(f"client {n}", WRONG)
        if not n % 1_000:
            assert throttle.failed("busy", WRONG).status_code == 429


def test_who_asks_too_often_is_told_when_to_come_again():
    clock = Hand()
    pace = RateLimiter(clock, burst=2, per_second=0.5)
    for at, allowed, wait in ((0.0, 2, "2"), (1.0, 0, "1"), (2.0, 1, "2"), (2.5, 0, "2"), (100.0, 2, "2")):
        clock.at = at
        for _ in range(allowed):
            pace.spend("a")
        with pytest.raises(Refused, match="30 a minute") as told:
            pace.spend("a")
        assert told.value.headers == {"Retry-After": wait}
    pace.spend("b")
