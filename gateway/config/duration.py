"""Durations as people write them: "90s", "30m", "1h30m"."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PATTERN = r"^([1-9][0-9]{0,5}d)?([1-9][0-9]{0,5}h)?([1-9][0-9]{0,5}m)?([1-9][0-9]{0,5}s)?$"
_SHAPE = re.compile(_PATTERN)


def parse_duration(text: str) -> timedelta:
    """Parse a duration longer than zero; raises `ValueError` with a message for people."""
    match = _SHAPE.match(text.strip())
    if match is None or not match[0]:
        raise ValueError('must be a duration such as "90s", "30m" or "1h30m"')
    return timedelta(seconds=sum(int(part[:-1]) * _UNITS[part[-1]] for part in match.groups() if part))


def format_duration(duration: timedelta) -> str:
    """The shortest text that `parse_duration` parses to `duration`, in whole seconds."""
    rest, parts = int(duration.total_seconds()), []
    for unit, seconds in _UNITS.items():
        count, rest = divmod(rest, seconds)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _validate(value: object) -> timedelta:
    return value if isinstance(value, timedelta) else parse_duration(str(value))


Duration = Annotated[
    timedelta,
    BeforeValidator(_validate),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _PATTERN, "minLength": 2, "examples": ["90s", "30m", "1h30m"]}),
]
