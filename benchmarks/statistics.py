"""What is said of many measurements."""

from collections.abc import Sequence
from statistics import quantiles


def p95(values: Sequence[float]) -> float:
    """What 19 of 20 stay below."""
    return quantiles(values, n=20)[18]
