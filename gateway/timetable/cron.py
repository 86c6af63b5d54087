"""Evaluates five cron fields on the wall clock of a zone, as slots: strictly increasing instants.

Fields are those of crontab(5): minute, hour, day of month, month, day of week (0 and 7 are Sunday), with names, lists,
ranges and steps. If both day fields are given, a day has to match only one of them; a day field that begins with
`*` does not count as given.

When the clock changes, every slot of the wall clock occurs exactly once:

* With fixed hours (the hour field does not cover all 24), a skipped time is shifted by the jump (02:30 to 03:30), and
  of a repeated time only the first counts. Two slots that coincide are one.
* With every hour, slots follow real time: they occur in both passes of a repeated hour and not in a skipped one, so
  that `*/15` never pauses.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from gateway.domain.zones import zone as named
from gateway.timetable.fields import checked
from gateway.timetable.wall import Wall

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_MAX_CHANGE = timedelta(hours=25)
"""More than any clock change ever (Apia skipped a day)."""
_SOME_DAY = date(2000, 1, 1)


class Cron:
    """The slots of `fields` in a zone; raises `ValueError` with a one-line message that says how to fix them."""

    def __init__(self, fields: str, zone: str) -> None:
        self.fields = checked(fields)
        self._zone = named(zone)
        self._wall = Wall(self.fields)
        self._found = datetime.min  # the clock change found last
        if self._wall.first_day(_SOME_DAY) is None:
            raise ValueError(f'"{self.fields}" never runs: those months have no such day')

    def after(self, moment: datetime) -> datetime | None:
        """The next slot after `moment`, in UTC; None at the end of the calendar."""
        return _in_utc(self._after, moment)

    def last(self, moment: datetime) -> datetime | None:
        """The latest slot at or before `moment`, in UTC; None at the beginning of the calendar."""
        return _in_utc(self._last, moment)

    def between(self, since: datetime, until: datetime) -> Iterator[datetime]:
        """Yield every slot after `since`, up to and including `until`; cheap even for many."""
        slot = self.after(since)
        while slot is not None and slot <= until:
            end = min(slot + _DAY, until)
            yield from self._within(slot - _SECOND, end)
            slot = self.after(end)

    def _within(self, since: datetime, until: datetime) -> Iterator[datetime]:
        """Like `between`, for about a day at most."""
        start, end = _naive(since), _naive(until)
        found = {
            wall - span.offset
            for span in self._spans(start - _MAX_CHANGE, end)
            for wall in self._wall.between(max(start, span.after) + span.offset, min(end, span.until) + span.offset)
        }
        return (slot.replace(tzinfo=UTC) for slot in sorted(found))

    def _after(self, moment: datetime) -> datetime | None:
        while (wall := self._wall.after(moment + (offset := self._offset(moment)))) is not None:
            guess = wall - offset  # correct unless the clock changes
            end = min(guess, moment + _MAX_CHANGE) + _MAX_CHANGE
            spans = self._spans(moment - _MAX_CHANGE, end)
            found = [slot for span in spans if (slot := self._first_in(span, moment)) is not None]
            if found and min(found) <= end:
                return min(found)
            moment = max(end, guess - _MAX_CHANGE)
        return None

    def _last(self, moment: datetime) -> datetime | None:
        while (wall := self._wall.until(moment + (offset := self._offset(moment)))) is not None:
            guess = wall - offset
            start = max(guess, moment - _MAX_CHANGE) - _MAX_CHANGE
            spans = self._spans(start - _MAX_CHANGE, moment)
            found = [slot for span in spans if (slot := self._last_in(span, moment)) is not None]
            if found and max(found) >= start:
                return max(found)
            moment = min(start - _SECOND, guess + _MAX_CHANGE)
        return None

    def _spans(self, since: datetime, until: datetime) -> "tuple[_Span, ...]":
        """The offsets to use in this range; the clock changes at most once within days."""
        old, new = self._offset(since), self._offset(until)
        if old == new:
            return (_Span(new),)
        eve = self._eve(since, until)
        if self._wall.every_hour:
            return _Span(old, until=eve), _Span(new, after=eve)
        # Skipped times keep the offset from before the jump; repeated times are not read again.
        return _Span(old, until=max(eve, eve + new - old)), _Span(new, after=max(eve, eve + old - new))

    def _eve(self, since: datetime, until: datetime) -> datetime:
        """The last second before the one clock change."""
        if not since <= self._found < until:
            old = self._offset(since)
            while until - since > _SECOND:
                middle = since + (until - since) // _SECOND // 2 * _SECOND
                since, until = (middle, until) if self._offset(middle) == old else (since, middle)
            self._found = since
        return self._found

    def _first_in(self, span: "_Span", moment: datetime) -> datetime | None:
        wall = self._wall.after(max(moment, span.after) + span.offset)
        return wall - span.offset if wall is not None and wall - span.offset <= span.until else None

    def _last_in(self, span: "_Span", moment: datetime) -> datetime | None:
        wall = self._wall.until(min(moment, span.until) + span.offset)
        return wall - span.offset if wall is not None and wall - span.offset > span.after else None

    def _offset(self, moment: datetime) -> timedelta:
        local = moment.replace(tzinfo=self._zone)
        return self._zone.fromutc(local).utcoffset() or timedelta()


@dataclass(frozen=True, slots=True)
class _Span:
    """Slots after `after`, up to and including `until` (UTC), use this offset."""

    offset: timedelta
    after: datetime = datetime.min
    until: datetime = datetime.max


def _in_utc(search: Callable[[datetime], datetime | None], moment: datetime) -> datetime | None:
    try:
        found = search(_naive(moment))
    except OverflowError:
        return None
    return found.replace(tzinfo=UTC) if found else None


def _naive(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None, microsecond=0)
