"""A daily time window: "08:00-22:00", or "08:00-22:00 Europe/Berlin"."""

import re
from dataclasses import dataclass
from datetime import datetime, time, tzinfo
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from gateway.domain.zones import zone

_CLOCK = r"([01][0-9]|2[0-3]):([0-5][0-9])"
_PATTERN = rf"^{_CLOCK}-{_CLOCK}( +[A-Za-z0-9_+/-]+)?$"
_SHAPE = re.compile(_PATTERN)


@dataclass(frozen=True, slots=True)
class ActiveHours:
    """From `start` to `end`, exclusive; may span midnight. `zone` is an IANA name."""

    start: time
    end: time
    zone: str | None = None

    def active(self, now: datetime, default: tzinfo | None) -> bool:
        """Whether `now` is in the window, in its own zone, else in `default`, else in the machine's zone."""
        return now.astimezone(zone(self.zone) if self.zone else default).time() in self

    def __contains__(self, moment: time) -> bool:
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M}{f' {self.zone}' if self.zone else ''}"


def parse_hours(text: str) -> ActiveHours:
    """Parse a window; raises `ValueError` with a message for people."""
    match = _SHAPE.match(text.strip())
    if match is None or match[0][:5] == match[0][6:11]:
        raise ValueError('must be two different times such as "08:00-22:00"')
    hour, minute, until_hour, until_minute = map(int, match.groups()[:4])
    named = zone(match[5].strip()).key if match[5] else None
    return ActiveHours(time(hour, minute), time(until_hour, until_minute), named)


def _validate(value: object) -> ActiveHours:
    return value if isinstance(value, ActiveHours) else parse_hours(str(value))


Hours = Annotated[
    ActiveHours,
    BeforeValidator(_validate),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _PATTERN, "examples": ["08:00-22:00", "08:00-22:00 Europe/Berlin"]}),
]
