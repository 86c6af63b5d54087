"""Time as a dependency, so that tests control it, and time zones by their IANA names."""

from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from typing import Protocol
from zoneinfo import ZoneInfo

from gateway.domain.text.texts import one_line


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for that long."""


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@lru_cache(maxsize=4096)  # each prompt has a stamp for each message of its conversation
def stamp(at: datetime, name: str | None) -> str:
    """ "Thu 2026-11-26 12:56 UTC-8": on the clock of the zone of that name, or of UTC."""
    return clock_text(at.astimezone(_zone_or_utc(name)))


def clock_text(at: datetime) -> str:
    """The same on the clock of the time's own zone."""
    minutes = round((at.utcoffset() or timedelta()).total_seconds() / 60)
    hours, rest = divmod(abs(minutes), 60)
    offset = f"{'-' if minutes < 0 else '+'}{hours}{f':{rest:02}' if rest else ''}" if minutes else ""
    # `strftime` takes three times as long.
    return f"{_DAYS[at.weekday()]} {at.isoformat(' ', 'minutes')[:16]} UTC{offset}"


def unix_time_text(seconds: float) -> str:
    """The same of a Unix time, in UTC; "" for one that isn't a date."""
    with suppress(ValueError, OverflowError, OSError):
        return clock_text(datetime.fromtimestamp(seconds, UTC))
    return ""


def day_stamp(at: datetime, name: str | None) -> str:
    """ "Thu 2026-11-26": the day in the zone of that name; in UTC, which it then says, if there is none."""
    there = at.astimezone(_zone_or_utc(name))
    return f"{_DAYS[there.weekday()]} {there:%Y-%m-%d}{' UTC' if there.tzinfo is UTC else ''}"


def local_day(at: datetime, name: str | None) -> date:
    """The day in the zone of that name, or in UTC."""
    return at.astimezone(_zone_or_utc(name)).date()


def _zone_or_utc(name: str | None) -> tzinfo:
    return ZoneInfo(name) if name and is_zone(name) else UTC


_MAX_ZONE_NAME = 64


def zone(name: str) -> ZoneInfo:
    """The zone of that name; raises `ValueError` with a one-line message that suggests the nearest name."""
    if not is_zone(name):
        raise ValueError(
            f'"{one_line(name, _MAX_ZONE_NAME)}" is not an IANA time zone; {_suggestion(name[:_MAX_ZONE_NAME])}'
        )
    return ZoneInfo(name)


def is_zone(name: str) -> bool:
    """Whether a zone of exactly that name exists."""
    return name in _zone_names()


def zone_names() -> list[str]:
    """The zones to choose from: the regions' cities, and UTC."""
    return ["UTC", *sorted(name for name in _zone_names() if "/" in name and not name.startswith("Etc/"))]


def moment(text: str, name: str | None, *, end: bool = False) -> datetime:
    """An ISO date or time in the zone of that name, or UTC; a date is its first moment, with `end` the next day's.

    Raises `ValueError`.
    """
    within = zone(name) if name else UTC
    with suppress(ValueError, OverflowError):
        return datetime.combine(date.fromisoformat(text) + timedelta(days=end), time(), within)
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=within)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="ascii").split()) - {"Factory"}


def _suggestion(name: str) -> str:
    meant = _plain(name)
    # Never guess from an abbreviation: CEST looks like EST but is six hours away.
    known = {_plain(each): each for each in sorted(_zone_names()) if "/" in each or _plain(each) == meant}
    cities = {plain.rpartition("/")[2]: each for plain, each in known.items() if "/" in plain}
    for names in (known, cities):
        close = get_close_matches(meant, names, n=1, cutoff=0.8)
        # Never guess from an offset either: the sign of Etc/GMT+2 is the reverse of what people mean.
        if close and not any(map(str.isdigit, meant + close[0])):
            return f"did you mean {names[close[0]]}?"
    return 'write one such as "Europe/Berlin" or "UTC"'


def _plain(name: str) -> str:
    return name.casefold().strip().replace(" ", "_")
