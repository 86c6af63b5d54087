"""Evaluates five cron fields on the wall clock of a zone, as slots: strictly increasing instants.

Fields are those of crontab(5): minute, hour, day of month, month, day of week (0 and 7 are Sunday), with names, lists,
ranges and steps. If both day fields are given, a day has to match only one of them; a day field that begins with
`*` does not count as given.

Beyond crontab(5): `L` is the last day of a month, `1#2` its second Monday, `L5` (or `5L`) its last Friday, `1%2` every
second Monday and `1%2+1` the Mondays between, in weeks counted from Monday, 1 January 2001. `?` is `*`; `@daily`,
`@hourly`, `@weekly`, `@monthly` and `@yearly` are fields.

When the clock changes, every slot of the wall clock occurs exactly once:

* With fixed hours (the hour field does not cover all 24), a skipped time is shifted by the jump (02:30 to 03:30), and
  of a repeated time only the first counts. Two slots that coincide are one.
* With every hour, slots follow real time: they occur in both passes of a repeated hour and not in a skipped one, so
  that `*/15` never pauses.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache, partial
from itertools import islice

from gateway.domain.text.texts import one_line
from gateway.domain.time import zone as named

_FIELD_VALUE = r"[0-9]{1,2}|[A-Za-z]{3}"
_FIELD_PART = re.compile(rf"(?:\*|({_FIELD_VALUE})(?:-({_FIELD_VALUE}))?)(?:/([0-9]{{1,3}}))?")
_MAX_CHARS = 200
_MAX_SHOWN = 40


def _name_numbers(names: str, first: int) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split(), first)}


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)

    def check(self, text: str) -> None:
        parts = text.split(",")
        plain = [part for part in parts if not self._special(part)]
        if 0 < len(plain) < len(parts) and self is not _FIELDS[2]:
            raise ValueError(f'{self.name} "{one_line(text, _MAX_SHOWN)}": # and L stand alone, or with their like')
        for part in plain:
            match = _FIELD_PART.fullmatch(part)
            if match is None:
                raise ValueError(f'{self.name} "{one_line(part, _MAX_SHOWN)}" is not understood: {self._known()}')
            self._check_part(part, *match.groups())

    def _special(self, part: str) -> bool:
        """Whether it is a day by its place in the month."""
        nth = re.fullmatch(rf"({_FIELD_VALUE})#[1-5]|L({_FIELD_VALUE})", part)
        if self is _FIELDS[4] and nth:
            self._number(nth[1] or nth[2])
        return part == "L" if self is _FIELDS[2] else bool(nth) and self is _FIELDS[4]

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
    _Field("month", 1, 12, _name_numbers("jan feb mar apr may jun jul aug sep oct nov dec", 1)),
    _Field("day of week", 0, 7, _name_numbers("sun mon tue wed thu fri sat", 0)),
)


_NAMED = {
    "@hourly": "0 * * * *",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
}
_WEEKS = re.compile(r"(?P<days>[^%]+)%(?P<every>[1-9]\d?)(?:\+(?P<after>\d{1,2}))?")


def check_fields(text: str) -> str:
    """Validate and normalise the fields; raises `ValueError` with a one-line message that says how to fix them."""
    fields = _NAMED.get(text.strip().lower(), text[: _MAX_CHARS + 1]).split()
    if len(fields) != len(_FIELDS) or len(text) > _MAX_CHARS:
        seconds = len(fields) == 6 and fields[0].isdigit() and not re.fullmatch(r"\d{4}", fields[5])  # not a year
        without = f'; without seconds it is "{" ".join(fields[1:])}"' if seconds else ""
        raise ValueError(
            "needs exactly 5 fields, minute hour day-of-month month day-of-week (no seconds), or @daily and the like, "
            f'such as "30 8 * * 1-5"; these are {len(fields)}{without}'
        )
    if "?" in (fields[2], fields[4]) and re.search(r"(?:^|[,-])L?\d", fields[4]):
        raise ValueError(f'day of week "{fields[4]}": beside ?, some count from 1, Sunday; write names, such as MON#1')
    for place in (2, 4):
        fields[place] = _day_field(_FIELDS[place].name, fields[place])
    weeks = _WEEKS.fullmatch(fields[4])
    if weeks and fields[2] != "*":
        raise ValueError('day of week with % needs "*" as the day of month')
    for meaning, each in zip(_FIELDS, [*fields[:4], weeks["days"] if weeks else fields[4]], strict=True):
        meaning.check(each)
    return " ".join(fields)


def _day_field(name: str, text: str) -> str:
    if re.search(r"\dW|LW|L-", text, re.IGNORECASE):
        raise ValueError(
            f'{name} "{one_line(text, _MAX_SHOWN)}" is not understood: take more days, such as "1-3" or "28-31", and '
            "let the prompt say on which of them there is something to do"
        )
    # croniter knows the last of a weekday by its number only
    names = re.compile(r"[a-z]{3}(?=l\b)|(?<=\bl)[a-z]{3}", re.IGNORECASE)
    text = names.sub(lambda day: str(_FIELDS[4].names.get(day[0].lower(), day[0])), text).replace("l", "L")
    return "*" if text == "?" else re.sub(r"\b(\w{1,3})L\b", r"L\1", text)


_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_FIRST_MONDAY = date(2001, 1, 1)
_MAX_YEARS = 10
"""The longest gap between slots; 29 February 2096 and 2104 are eight years apart."""


class Days:
    """The days of checked fields; croniter finds them, whose times of day are wrong around clock changes."""

    def __init__(self, fields: str) -> None:
        from croniter import croniter  # deferred: importing it takes 40 ms

        _, _, day, month, weekday = fields.split()
        weeks = _WEEKS.fullmatch(weekday)
        self._every, self._after = (int(weeks["every"]), int(weeks["after"] or 0)) if weeks else (1, 0)
        midnights = f"0 0 {day} {month} {weeks['days'] if weeks else weekday}"
        self._all = midnights == "0 0 * * *"
        # The "bug" is the classic rule for a day field that begins with a star.
        self._search = partial(croniter, midnights, max_years_between_matches=_MAX_YEARS, implement_cron_bug=True)
        # Cached ranges by their direction: the only match in one is at its far end.
        self._known = {step: deque[tuple[date, date]](maxlen=4) for step in (_DAY, -_DAY)}

    def nearest(self, day: date, step: timedelta) -> date | None:
        """The first matching day from this one on, looking a day ahead or back at each `step`."""
        found = self._of_any_week(day, step)
        while found and ((found - _FIRST_MONDAY).days // 7 - self._after) % self._every:
            found = self._of_any_week(found + step, step)
        return found

    def along(self, day: date, step: timedelta) -> Iterator[date]:
        """Every matching day from this one on, ahead or back by `step`."""
        while found := self.nearest(day, step):
            yield found
            day = found + step

    def _of_any_week(self, day: date, step: timedelta) -> date | None:
        if self._all:
            return day
        for start, found in self._known[step]:
            if min(start, found) <= day <= max(start, found):
                return found
        midnight, ahead = datetime.combine(day, time()), step > timedelta()
        try:
            search = self._search(midnight - _MINUTE if ahead else midnight + _MINUTE)
            found = (search.get_next if ahead else search.get_prev)(datetime).date()
        except ValueError:  # none within _MAX_YEARS, or past the calendar's end
            return None
        self._known[step].append((day, found))
        return found


def times_of_day(fields: str) -> list[time]:
    """The times of day of checked fields, in order."""
    minute, hour, *_ = fields.split()
    return [time(each, at) for each in numbers(hour, 1) for at in numbers(minute, 0)]


def numbers(field: str, place: int) -> list[int]:
    """The numbers that a valid field stands for, sorted; `place` is its own among the five, from 0."""
    from croniter import croniter  # deferred: importing it takes 40 ms

    found = croniter.expand(" ".join(["*"] * place + [field] + ["*"] * (4 - place)))[0][place]
    every = range(_FIELDS[place].low, _FIELDS[place].high + (place < 4))  # 7 is Sunday, too
    return list(every) if found == ["*"] else list(map(int, found))


def shortest_gap(fields: str) -> timedelta:
    """The least time between two slots of checked fields; over midnight as if every day matched."""
    minutes = [at.hour * 60 + at.minute for at in times_of_day(fields)]
    later = [*minutes[1:], minutes[0] + 24 * 60]
    return min(end - start for start, end in zip(minutes, later, strict=True)) * _MINUTE


class Cron:
    """The slots of `fields` in a zone; raises `ValueError` with a one-line message that says how to fix them."""

    def __init__(self, fields: str, zone: str) -> None:
        self.fields = check_fields(fields)
        self._zone = named(zone)
        self._days = Days(self.fields)
        self._times = times_of_day(self.fields)
        self._every_hour = len({at.hour for at in self._times}) == 24
        self._of_day = lru_cache(maxsize=4)(self._slots)
        if self._days.nearest(date(2000, 1, 1), _DAY) is None:
            raise ValueError(f'"{self.fields}" never runs: those months have no such day')

    def after(self, moment: datetime) -> datetime | None:
        """The next slot after `moment`, in UTC; None at the end of the calendar."""
        second = _second(moment)
        return _in_utc(min((slot for slot in self._nearby(moment, _DAY) if slot > second), default=None))

    def last(self, moment: datetime) -> datetime | None:
        """The latest slot at or before `moment`, in UTC; None at the beginning of the calendar."""
        second = _second(moment)
        return _in_utc(max((slot for slot in self._nearby(moment, -_DAY) if slot <= second), default=None))

    def between(self, since: datetime, until: datetime) -> Iterator[datetime]:
        """Yield every slot after `since`, up to and including `until`."""
        while (slot := self.after(since)) and slot <= until:
            yield (since := slot)

    def _nearby(self, moment: datetime, step: timedelta) -> list[int]:
        """The slots of four matching days, from the day behind: a clock change moves a slot by up to a day."""
        try:
            days = list(islice(self._days.along(moment.astimezone(self._zone).date() - step, step), 4))
            return [slot for day in days for slot in self._of_day(day)]
        except OverflowError:  # at an end of the calendar
            return []

    def _slots(self, day: date) -> list[int]:
        """In seconds since 1970. Python gives a skipped time the offset before it, and a repeated one its first."""
        start, end = (_second(datetime.combine(each, time(), self._zone)) for each in (day, day + _DAY))
        if end - start == _DAY.total_seconds():
            return [start + (at.hour * 60 + at.minute) * 60 for at in self._times]
        walls = [datetime.combine(day, at, self._zone) for at in self._times]
        if self._every_hour:
            twice = (wall for each in walls for wall in (each, each.replace(fold=1)))
            walls = [wall for wall in twice if wall.astimezone(UTC).astimezone(wall.tzinfo) == wall]  # those that exist
        return sorted({_second(wall) for wall in walls})


def _second(moment: datetime) -> int:
    return int(moment.replace(microsecond=0).timestamp())


def _in_utc(second: int | None) -> datetime | None:
    return None if second is None else datetime.fromtimestamp(second, UTC)
