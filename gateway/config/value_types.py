"""Values that config.json has as text: durations ("1h30m"), hours ("08:00-22:00") and the public URL of the page."""

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, ValidationError, WithJsonSchema
from pydantic_core import Url

from gateway.domain.errors import raising
from gateway.domain.time import zone

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION_PATTERN = r"^([1-9][0-9]{0,5}d)?([1-9][0-9]{0,5}h)?([1-9][0-9]{0,5}m)?([1-9][0-9]{0,5}s)?$"
_DURATION = re.compile(_DURATION_PATTERN)


def parse_duration(text: str) -> timedelta:
    """Parse a duration longer than zero; raises `ValueError` with a message for people."""
    match = _DURATION.match(text.strip())
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


Duration = Annotated[
    timedelta,
    BeforeValidator(lambda value: value if isinstance(value, timedelta) else parse_duration(str(value))),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {"type": "string", "pattern": _DURATION_PATTERN, "minLength": 2, "examples": ["90s", "30m", "1h30m"]}
    ),
]


_CLOCK = r"([01][0-9]|2[0-3]):([0-5][0-9])"
_HOURS_PATTERN = rf"^{_CLOCK}-{_CLOCK}( +[A-Za-z0-9_+/-]+)?$"
_HOURS = re.compile(_HOURS_PATTERN)


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
    match = _HOURS.match(text.strip())
    if match is None or match[0][:5] == match[0][6:11]:
        raise ValueError('must be two different times such as "08:00-22:00"')
    hour, minute, until_hour, until_minute = map(int, match.groups()[:4])
    named = zone(match[5].strip()).key if match[5] else None
    return ActiveHours(time(hour, minute), time(until_hour, until_minute), named)


Hours = Annotated[
    ActiveHours,
    BeforeValidator(lambda value: value if isinstance(value, ActiveHours) else parse_hours(str(value))),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {"type": "string", "pattern": _HOURS_PATTERN, "examples": ["08:00-22:00", "08:00-22:00 Europe/Berlin"]}
    ),
]


LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


def parse_public_url(text: str) -> str:
    """Normalise a URL to an origin as browsers send it; raises `ValueError` with a message for people."""
    with raising(ValueError('must be an address such as "https://claw.example.org"'), ValidationError):
        url = Url(text.strip())
    if url.scheme != "https" and not (url.scheme == "http" and url.host in LOOPBACK_HOSTS):
        raise ValueError("must begin with https:// (http:// only for localhost)")
    origin = str(Url.build(scheme=url.scheme, host=url.host or "", port=url.port))
    if str(url) != origin:
        raise ValueError(f"must be a host and perhaps a port, nothing before or after: {origin.rstrip('/')}")
    return origin.rstrip("/")


PublicUrl = Annotated[str, AfterValidator(parse_public_url)]
Networks = Annotated[
    tuple[Annotated[IPv4Network | IPv6Network, BeforeValidator(str)], ...],  # else false is 0.0.0.0
    BeforeValidator(lambda value: value.replace(",", " ").split() if isinstance(value, str) else value),
]
"""Networks in CIDR notation; a variable has them as text, with commas."""
