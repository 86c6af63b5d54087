"""Findings of the checks that `supaclaw doctor` and the page's Health run."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is; one `FAIL` makes the exit code of `supaclaw doctor` 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check, and how to fix it."""

    level: Level
    text: str
    fix: str = ""
