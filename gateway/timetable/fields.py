"""Validates five cron fields. croniter accepts more, and misreads some of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.domain.text.texts import one_line

_VALUE = r"[0-9]{1,2}|[A-Za-z]{3}"
_PART = re.compile(rf"(?:\*|({_VALUE})(?:-({_VALUE}))?)(?:/([0-9]{{1,3}}))?")
_MAX_CHARS = 200
_MAX_SHOWN = 40


def _numbered(names: str, first: int) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split(), first)}


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)

    def check(self, text: str) -> None:
        for part in text.split(","):
            match = _PART.fullmatch(part)
            if match is None:
                raise ValueError(f'{self.name} "{one_line(part, _MAX_SHOWN)}" is not understood: {self._known()}')
            self._check_part(part, *match.groups())

    def _check_part(self, part: str, low: str | None, high: str | None, step: str | None) -> None:
        ends = [self._number(end) for end in (low, high) if end is not None]
        if len(ends) == 2 and ends[0] == ends[1]:  # croniter takes it as the whole cycle
            raise ValueError(f'{self.name} "{part}" is not a range: write "{low}"')
        if step is not None and ends != sorted(ends):  # croniter miscounts these
            raise ValueError(
                f'{self.name} "{part}" wraps around: write "{low}-{self.high}/{step}" and the rest separately'
            )
        if step is not None and not 1 <= int(step) <= self.high:
            raise ValueError(
                f'{self.name} "{part}": a step must be 1-{self.high}, and restarts at {self.low} each time'
            )

    def _number(self, text: str) -> int:
        number = int(text) if text.isdigit() else self.names.get(text.lower())
        if number is None or not self.low <= number <= self.high:
            raise ValueError(f'{self.name} "{text}" is out of range: {self._known()}')
        return number

    def _known(self) -> str:
        names = f" or names such as {min(self.names).upper()}" if self.names else ""
        return f"use * or {self.low}-{self.high}{names}, with lists (,), ranges (-) and steps (/)"


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _numbered("jan feb mar apr may jun jul aug sep oct nov dec", 1)),
    _Field("day of week", 0, 7, _numbered("sun mon tue wed thu fri sat", 0)),
)


def checked(text: str) -> str:
    """Validate and normalise the fields; raises `ValueError` with a one-line message that says how to fix them."""
    fields = text[: _MAX_CHARS + 1].split()
    if len(fields) != len(_FIELDS) or len(text) > _MAX_CHARS:
        raise ValueError(
            f"needs exactly 5 fields, minute hour day-of-month month day-of-week (no seconds, no @names), "
            f'such as "30 8 * * 1-5"; these are {len(fields)}'
        )
    for meaning, each in zip(_FIELDS, fields, strict=True):
        meaning.check(each)
    return " ".join(fields)
