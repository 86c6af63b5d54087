"""Evaluates five cron fields on a clock without clock changes."""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from functools import partial

_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_MAX_YEARS = 10
"""Between two slots; 29 February 2096 and 2104 are eight apart."""


class Wall:
    """The fields on a plain clock. croniter only finds the days: its times are wrong around clock changes."""

    def __init__(self, fields: str) -> None:
        from croniter import croniter  # deferred: importing it takes 40 ms

        (minutes, hours, *days), _ = croniter.expand(fields)
        every = [(hour, minute) for hour in _numbers(hours, 24) for minute in _numbers(minutes, 60)]
        self.every_hour = len({hour for hour, _ in every}) == 24
        self._times = array("H", [hour * 60 + minute for hour, minute in every])
        self._every_day = days == [["*"]] * 3
        # The "bug" is the classic rule for a day field that begins with a star.
        midnights = f"0 0 {fields.split(maxsplit=2)[2]}"
        self._search = partial(croniter, midnights, max_years_between_matches=_MAX_YEARS, implement_cron_bug=True)
        self._ahead = deque[tuple[date, date]](maxlen=4)  # cached ranges whose only match is at the end
        self._behind = deque[tuple[date, date]](maxlen=4)  # cached ranges whose only match is at the start

    @property
    def shortest_gap(self) -> timedelta:
        """The least time between two matches; over midnight as if every day matched."""
        later = [*self._times[1:], self._times[0] + 24 * 60]
        return min(end - start for start, end in zip(self._times, later, strict=True)) * _MINUTE

    def after(self, wall: datetime) -> datetime | None:
        """The first match after `wall`."""
        day, later = wall.date(), bisect_right(self._times, _minute(wall))
        if later < len(self._times) and self.first_day(day) == day:
            return _at(day, self._times[later])
        other = self.first_day(day + _DAY)
        return _at(other, self._times[0]) if other else None

    def until(self, wall: datetime) -> datetime | None:
        """The latest match at or before `wall`."""
        day, count = wall.date(), bisect_right(self._times, _minute(wall))
        if count and self.last_day(day) == day:
            return _at(day, self._times[count - 1])
        other = self.last_day(day - _DAY)
        return _at(other, self._times[-1]) if other else None

    def between(self, since: datetime, until: datetime) -> Iterator[datetime]:
        """Yield every match after `since`, up to and including `until`."""
        day = self.first_day(since.date())
        while day is not None and day <= until.date():
            start = bisect_right(self._times, _minute(since)) if day == since.date() else 0
            end = bisect_right(self._times, _minute(until)) if day == until.date() else None
            yield from (_at(day, minute) for minute in self._times[start:end])
            day = self.first_day(day + _DAY)

    def first_day(self, since: date) -> date | None:
        """The first matching day from `since` on."""
        if self._every_day:
            return since
        for start, found in self._ahead:
            if start <= since <= found:
                return found
        try:
            found = self._search(datetime.combine(since, time()) - _MINUTE).get_next(datetime).date()
        except ValueError:  # none within _MAX_YEARS, or past the calendar's end
            return None
        self._ahead.append((since, found))
        return found

    def last_day(self, until: date) -> date | None:
        """The last matching day up to `until`."""
        if self._every_day:
            return until
        for found, end in self._behind:
            if found <= until <= end:
                return found
        try:
            found = self._search(datetime.combine(until, time()) + _MINUTE).get_prev(datetime).date()
        except ValueError:
            return None
        self._behind.append((found, until))
        return found


def _numbers(expanded: Sequence[int | str], all_of_them: int) -> Sequence[int]:
    return range(all_of_them) if expanded == ["*"] else [int(each) for each in expanded]


def _at(day: date, minute: int) -> datetime:
    return datetime.combine(day, time(*divmod(minute, 60)))


def _minute(wall: datetime) -> int:
    return wall.hour * 60 + wall.minute
