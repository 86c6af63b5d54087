"""What is expected of a cron expression, by looking at a zone's clock every minute; and where clocks change."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
# fmt: off
ZONES = (
    "Africa/Cairo", "Africa/Casablanca", "America/Asuncion", "America/Havana", "America/Los_Angeles",
    "America/Miquelon", "America/New_York", "America/Nuuk", "America/Santiago", "America/St_Johns", "America/Tijuana",
    "Antarctica/Troll", "Asia/Beirut", "Asia/Gaza", "Asia/Jerusalem", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Tokyo",
    "Atlantic/Azores", "Australia/Adelaide", "Australia/Lord_Howe", "Australia/Sydney", "Europe/Berlin",
    "Europe/Chisinau", "Europe/Dublin", "Europe/Helsinki", "Europe/Lisbon", "Europe/London", "Pacific/Apia",
    "Pacific/Auckland", "Pacific/Chatham", "Pacific/Easter", "Pacific/Honolulu", "Pacific/Kiritimati",
    "Pacific/Kwajalein", "Pacific/Norfolk", "UTC",
)
# fmt: on
ODD_DAYS = {
    "Pacific/Apia": date(2011, 12, 30),
    "Pacific/Kwajalein": date(1993, 8, 21),
    "Asia/Kathmandu": date(1986, 1, 1),
}
PLAIN_DAYS = (date(2026, 4, 30), date(2027, 2, 28), date(2027, 12, 31), date(2028, 2, 29))


@dataclass(frozen=True)
class Fields:
    """Cron fields with what they mean; None is a star."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None

    def on(self, day: date) -> bool:
        of_month = self.days is None or day.day in self.days
        of_week = self.weekdays is None or day.isoweekday() % 7 in self.weekdays
        either = self.days is not None and self.weekdays is not None
        return day.month in self.months and ((of_month or of_week) if either else (of_month and of_week))

    def match(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and self.on(wall.date())


def numbers(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field without a star, and the numbers it stands for."""
    value = st.integers(low, high)
    single = value.map(lambda one: (str(one), frozenset([one])))
    ends = st.tuples(value, value).filter(lambda pair: pair[0] != pair[1])
    step = st.integers(1, high)

    def reach(pair: tuple[int, int], by: int = 1) -> frozenset[int]:
        first, last = pair
        cycle = high - low + 1
        return frozenset(low + (first - low + n) % cycle for n in range(0, (last - first) % cycle + 1, by))

    spans = ends.map(lambda pair: (f"{pair[0]}-{pair[1]}", reach(pair)))
    upwards = ends.map(lambda pair: (min(pair), max(pair)))
    stepped = st.tuples(upwards, step).map(lambda each: (f"{each[0][0]}-{each[0][1]}/{each[1]}", reach(*each)))
    parts = st.lists(st.one_of(single, spans, stepped), min_size=1, max_size=3)
    return parts.map(lambda some: (",".join(text for text, _ in some), frozenset().union(*(each for _, each in some))))


def starred(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field that may be a star."""
    every = st.just(("*", frozenset(range(low, high + 1))))
    steps = st.integers(1, high).map(lambda step: (f"*/{step}", frozenset(range(low, high + 1, step))))
    return st.one_of(every, steps, numbers(low, high))


def day_field(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int] | None]]:
    return st.one_of(st.just(("*", None)), numbers(low, high))


@st.composite
def fields(draw: st.DrawFn) -> Fields:
    parts = [draw(each) for each in (starred(0, 59), starred(0, 23), day_field(1, 31), starred(1, 12), day_field(0, 6))]
    texts, meanings = zip(*parts, strict=True)
    return Fields(" ".join(texts), *meanings)


@lru_cache(maxsize=8)
def readings(zone: str, since: datetime, until: datetime, *, once: bool) -> tuple[tuple[datetime, datetime], ...]:
    """What the clock shows in each minute (UTC). `once`: nothing a second time, and what it skips as much later."""
    there, seen, found = ZoneInfo(zone), datetime.min, list[tuple[datetime, datetime]]()
    moment = since - DAY - MINUTE
    while moment < until:
        wall = moment.astimezone(there).replace(tzinfo=None)
        if once and found and wall > seen + MINUTE:
            skipped = (wall - seen) // MINUTE - 1
            found += [(seen + n * MINUTE, moment + (n - 1) * MINUTE) for n in range(1, skipped + 1)]
        if not once or wall > seen:
            found.append((wall, moment))
        seen, moment = max(seen, wall), moment + MINUTE
    return tuple(found)


def expected(fields: Fields, zone: str, since: datetime, until: datetime) -> list[datetime]:
    """The slots in [since, until), each minute looked at on its own."""
    read = readings(zone, since, until, once=len(fields.hours) < 24)
    return sorted({moment for wall, moment in read if since <= moment < until and fields.match(wall)})


def changes(zone: str, first: int, last: int) -> Iterator[date]:
    """The days (UTC) of those years on which the zone's clock is put forward or back."""
    there, moment = ZoneInfo(zone), datetime(first, 1, 1, tzinfo=UTC)
    while moment.year <= last:
        if moment.astimezone(there).utcoffset() != (moment + DAY).astimezone(there).utcoffset():
            yield moment.date()
        moment += DAY


@lru_cache(maxsize=64)
def eventful(zone: str) -> tuple[date, ...]:
    """The days worth a look in that zone."""
    odd = [ODD_DAYS[zone]] if zone in ODD_DAYS else []
    return (*odd, *changes(zone, 2026, 2027), PLAIN_DAYS[ZONES.index(zone) % len(PLAIN_DAYS)])


def around(day: date) -> tuple[datetime, datetime]:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return start - HOUR, start + DAY + HOUR
