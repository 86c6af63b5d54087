"""A leak is told from noise."""

import random

from tests.chaos.soak import Sample, growing, slope, slopes


def samples(per_hour: float, noise: float, fds: float = 0.0) -> list[Sample]:
    chance = random.Random(7)
    minutes = [n / 12 for n in range(360)]
    return [
        Sample(m / 60, 100, 80 + per_hour * m / 60 + chance.gauss(0, noise), int(40 + fds * m / 60), 9, 30, 0)
        for m in minutes
    ]


def test_a_line_has_its_slope_and_no_error() -> None:
    found = slope([0.0, 1.0, 2.0, 3.0], [5.0, 7.0, 9.0, 11.0])
    assert (found.per_hour, found.error) == (2.0, 0.0)


def test_a_leak_is_found_and_noise_is_not() -> None:
    assert growing(slopes(samples(3.0, noise=0.5))) == ["uss_mb"]
    assert growing(slopes(samples(0.0, noise=5.0))) == []
    assert growing(slopes(samples(0.5, noise=0.1))) == []
    assert growing(slopes(samples(0.0, noise=0.1, fds=20.0))) == ["fds"]


def test_what_only_fills_up_at_the_start_is_no_leak() -> None:
    filled = [
        Sample(s.hours, 100, 80 + min(s.hours * 600, 60) + random.Random(n).gauss(0, 0.3), 40, 9, 30, 0)
        for n, s in enumerate(samples(0.0, 0.0))
    ]
    assert growing(slopes(filled)) == []
