"""Figures in place of fenced blocks of data: charts of a declared form, and tables of CSV that sort by a column."""

import csv
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import chain
from math import ceil, floor, log10
from typing import Annotated, Literal, Self

from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from gateway.web.pages import Pages

MAX_ROWS, MAX_CELLS = 1_000, 5_000
"""Of a table; a larger one is shown as text."""
MAX_SERIES = 8
TAGS = frozenset({"svg", "rect", "path", "polyline", "circle", "text", "title"})
ATTRIBUTES = frozenset({"cx", "cy", "d", "height", "points", "r", "text-anchor", "width", "x", "y"})
PIE = frozenset({"pathLength", "stroke-dasharray", "stroke-dashoffset"})
CLASSES = frozenset({"axis", "grid", *(f"s{number}" for number in range(MAX_SERIES))})

TOP, BOTTOM = 10.0, 224.0
"""Between these lies what is plotted."""
_TICKS = 5

_pages = cache(Pages)
_Name = Annotated[str, Field(max_length=100)]
_Number = Annotated[FiniteFloat, Field(ge=-1e15, le=1e15)]


class Chart(BaseModel):
    """The declared form of a chart: a series has one number for each label; a pie has one series."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["bar", "line", "pie"]
    title: _Name = ""
    labels: tuple[_Name, ...] = Field(min_length=1, max_length=60)
    series: dict[_Name, tuple[_Number, ...]] = Field(min_length=1, max_length=MAX_SERIES)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if any(len(values) != len(self.labels) for values in self.series.values()):
            raise ValueError("a series needs one number for each label")
        if self.type == "pie" and not (len(self.series) == 1 and len(self.labels) <= MAX_SERIES and self.shares):
            raise ValueError("a pie has one series of at most eight numbers, none of them negative, not all of them 0")
        return self

    @property
    def numbers(self) -> Sequence[float]:
        """The numbers of all series."""
        return list(chain.from_iterable(self.series.values()))

    @property
    def shares(self) -> Sequence[float]:
        """The numbers as parts of their sum; empty if they aren't."""
        whole = sum(self.numbers)
        return [number / whole for number in self.numbers] if whole and min(self.numbers) >= 0 else []

    @property
    def rows(self) -> Sequence[Sequence[str]]:
        """The labels, each with its numbers."""
        columns = [[f"{number:,.10g}" for number in values] for values in self.series.values()]
        return list(zip(self.labels, *columns, strict=True))

    @cached_property
    def ticks(self) -> Sequence[float]:
        """The numbers at the lines of its axis, the lowest first."""
        low, high = min(0.0, *self.numbers, 0.0), max(0.0, *self.numbers, 0.0)
        power = 10.0 ** floor(log10(((high - low) or 1.0) / _TICKS))
        gap = next(times * power for times in (1, 2, 5, 10) if (high - low) / (times * power) <= _TICKS)
        return [number * gap for number in range(floor(low / gap), max(ceil(high / gap), 1) + 1)]

    def y(self, number: float) -> float:
        """Where a number lies."""
        low, high = self.ticks[0], self.ticks[-1]
        return BOTTOM - (number - low) / (high - low) * (BOTTOM - TOP)


def chart(source: str) -> Markup | None:
    """The chart that this JSON declares, with its numbers as a table; None if it is of another form."""
    try:
        return _pages().piece("figure.html", chart=Chart.model_validate_json(source))
    except ValidationError:
        return None


def csv_table(text: str) -> Markup | None:
    """The rows of a CSV text under its first line, to be sorted; None if it isn't one, or is too large."""
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    try:
        names, *rows = filter(None, csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=True))
    except (csv.Error, ValueError):
        return None
    fits = len(rows) <= MAX_ROWS and len(names) * len(rows) <= MAX_CELLS and len({len(names), *map(len, rows)}) == 1
    if not fits or len(names) < 2 or not rows:
        return None
    numeric = [all(map(_is_number, column)) for column in zip(*rows, strict=True)]
    return _pages().piece("figure.html", chart=None, names=names, rows=rows, numeric=numeric)


def _is_number(cell: str) -> bool:
    return not cell or cell.replace(",", "").replace(".", "", 1).removeprefix("-").isdecimal()
