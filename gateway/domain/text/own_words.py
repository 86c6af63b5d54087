"""Whether a value is a person's own: they wrote it themself, or it is a time that they wrote in other words."""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import product

from gateway.domain.text.texts import quotes_whole

FEW = 4
"""Dates, times of day and lengths in a message: among more of them, which one is meant says something by itself."""
_VALUE = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::00)?")
_DATE = re.compile(r"(?<![\w./-])(?:(\d{4})-(\d\d)-(\d\d)|(\d\d?)\.(\d\d?)\.(\d{4}))(?![\w-])")
_TIME = re.compile(r"(?<![\w.:+-])(\d\d?):(\d\d)(?:\s?([ap])\.?m\b)?(?![\w:])", re.IGNORECASE)
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_LENGTH = re.compile(rf"\b(\d{{1,3}}|{'|'.join(_NUMBERS)})[ -]?(hour|minute|h|min)s?\b", re.IGNORECASE)


def wrote(text: str, value: str) -> bool:
    """Whether who wrote `text` wrote `value`, word for word.

    `2024-05-19 13:00` is theirs, too, where one message has its date and its time, or a time an hour before and "for
    one hour".
    """
    return quotes_whole(text, value) or _says_time(text, value)


def _says_time(text: str, value: str) -> bool:
    if not (match := _VALUE.fullmatch(value.strip())):
        return False
    parts = set(_dates(text)), set(_times(text)), {timedelta(), *_lengths(text)}
    if any(len(part) > FEW for part in parts):
        return False
    wanted = f"{match[1]} {match[2]}"
    return any(f"{day + time + length:%Y-%m-%d %H:%M}" == wanted for day, time, length in product(*parts))


def _dates(text: str) -> Iterator[datetime]:
    for match in _DATE.finditer(text):
        year, month, day = match.group(1, 2, 3) if match[1] else match.group(6, 5, 4)
        with suppress(ValueError):
            yield datetime(int(year), int(month), int(day))


def _times(text: str) -> Iterator[timedelta]:
    for match in _TIME.finditer(text):
        hour, minute, half = int(match[1]), int(match[2]), (match[3] or "").lower()
        if half and not 1 <= hour <= 12:
            continue
        hour = hour % 12 + 12 * (half == "p") if half else hour
        if hour < 24 and minute < 60:
            yield timedelta(hours=hour, minutes=minute)


def _lengths(text: str) -> Iterator[timedelta]:
    for match in _LENGTH.finditer(text):
        count = int(match[1]) if match[1].isdecimal() else _NUMBERS.index(match[1].lower()) + 1
        yield timedelta(hours=count) if match[2].lower().startswith("h") else timedelta(minutes=count)
