"""Figures in place of fenced blocks of data: charts of a declared form, and tables of CSV that sort by a column."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, cos, floor, log10, pi, sin
from typing import Annotated, Literal, Self

from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from gateway.domain.text.texts import compact, one_line

MAX_ROWS, MAX_CELLS = 1_000, 5_000
"""Of a table; a larger one is shown as text."""
TAGS = frozenset({"svg", "rect", "path", "polyline", "circle", "text", "title"})
ATTRIBUTES = frozenset({"cx", "cy", "d", "height", "points", "r", "text-anchor", "width", "x", "y"})
COLOURS = tuple(f"s{number}" for number in range(8))
"""Classes of the series."""

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 480.0, 250.0, 52.0, 10.0, 26.0
"""Of a chart, and the margins of what is plotted."""
_TICKS, _LABELS, _LABEL_CHARS = 5, 8, 10

_Name = Annotated[str, Field(max_length=100)]
_Number = Annotated[FiniteFloat, Field(ge=-1e15, le=1e15)]


class Chart(BaseModel):
    """The declared form of a chart: a series has one number for each label; a pie has one series."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["bar", "line", "pie"]
    title: _Name = ""
    labels: tuple[_Name, ...] = Field(min_length=1, max_length=60)
    series: dict[_Name, tuple[_Number, ...]] = Field(min_length=1, max_length=len(COLOURS))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if any(len(values) != len(self.labels) for values in self.series.values()):
            raise ValueError("a series needs one number for each label")
        if self.type == "pie" and not (len(self.series) == 1 and len(self.labels) <= len(COLOURS) and self.shares):
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


def chart(source: str) -> Markup | None:
    """The chart that this JSON declares, with its numbers as a table; None if it is of another form."""
    try:
        form = Chart.model_validate_json(source)
    except ValidationError:
        return None
    drawn: Iterator[Markup] = chain(_axes(form), _marks(form))
    names = list(form.series)
    if form.type == "pie":
        drawn = _pie(form)
        names = [f"{name}: {share:.0%}" for name, share in zip(form.labels, form.shares, strict=True)]
    legend = [Markup('<li><span class="{}"></span>{}</li>').format(*each) for each in zip(COLOURS, names, strict=False)]
    columns = [form.labels, *([_written(number) for number in values] for values in form.series.values())]
    return Markup(
        '<figure class="plot"><figcaption>{}</figcaption><svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">'
        '{}</svg><ul class="legend">{}</ul><details><summary>Numbers</summary>{}</details></figure>\n'
    ).format(
        form.title,
        WIDTH,
        HEIGHT,
        f"{form.type.title()} chart: {form.title or ', '.join(form.series)}",
        Markup().join(drawn),
        Markup().join(legend),
        _table(["Label", *form.series], list(zip(*columns, strict=True))),
    )


def _shape(tag: str, kind: str, about: str, **places: float | str) -> Markup:
    """An SVG element that tells `about` itself under the pointer."""
    placed = [Markup('{}="{}"').format(name, _place(place)) for name, place in places.items()]
    return Markup('<{0} class="{1}" {2}><title>{3}</title></{0}>').format(tag, kind, Markup(" ").join(placed), about)


def _text(text: str, x: float, y: float, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _place(place: float | str) -> str:
    return place if isinstance(place, str) else f"{place:.1f}"


def _pie(form: Chart) -> Iterator[Markup]:
    x, y, radius, start = WIDTH / 2, HEIGHT / 2, HEIGHT / 2 - TOP, 0.0
    for kind, name, share in zip(COLOURS, form.labels, form.shares, strict=False):
        about, end = f"{name}: {share:.1%}", start + min(share, 0.9999)  # an arc that ends where it begins is none
        corners = [f"{x + radius * sin(2 * pi * at):.2f} {y - radius * cos(2 * pi * at):.2f}" for at in (start, end)]
        arc = f"M{x} {y}L{corners[0]}A{radius} {radius} 0 {int(share > 0.5)} 1 {corners[1]}Z"
        yield _shape("path", kind, about, d=arc)
        start += share


@dataclass(frozen=True, slots=True)
class _Scale:
    """The places of numbers and labels on a chart."""

    ticks: Sequence[float]
    step: float

    @classmethod
    def of(cls, form: Chart) -> Self:
        low, high = min(0.0, *form.numbers, 0.0), max(0.0, *form.numbers, 0.0)
        span = (high - low) or 1.0
        power = 10.0 ** floor(log10(span / _TICKS))
        gap = next(times * power for times in (1, 2, 5, 10) if span / (times * power) <= _TICKS)
        ticks = [number * gap for number in range(floor(low / gap), ceil(high / gap) + 1)]
        return cls(ticks if len(ticks) > 1 else [0.0, 1.0], (WIDTH - LEFT) / len(form.labels))

    def x(self, place: float) -> float:
        """The middle of the label at this place."""
        return LEFT + self.step * (place + 0.5)

    def y(self, number: float) -> float:
        """The height of a number."""
        low, high = self.ticks[0], self.ticks[-1]
        return HEIGHT - BOTTOM - (number - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def _axes(form: Chart) -> Iterator[Markup]:
    scale = _Scale.of(form)
    for tick in scale.ticks:
        y, sign = scale.y(tick), "−" if tick < 0 else ""
        yield Markup('<path class="{}" d="M{} {:.1f}H{}"/>').format("grid" if tick else "axis", LEFT, y, WIDTH)
        yield _text(sign + (compact(abs(tick)) if abs(tick) >= 1_000 else _written(abs(tick))), LEFT - 6, y + 4, "end")
    for place in range(0, len(form.labels), ceil(len(form.labels) / _LABELS)):
        yield _text(one_line(form.labels[place], _LABEL_CHARS), scale.x(place), HEIGHT - 8, "middle")


def _marks(form: Chart) -> Iterator[Markup]:
    """The bars, or the lines with their points."""
    scale = _Scale.of(form)
    width = scale.step * 0.8 / len(form.series)
    for number, (kind, (name, values)) in enumerate(zip(COLOURS, form.series.items(), strict=False)):
        abouts = [f"{label}, {name}: {_written(value)}" for label, value in zip(form.labels, values, strict=True)]
        places = [(scale.x(place), scale.y(value)) for place, value in enumerate(values)]
        if form.type == "line":
            yield _shape("polyline", kind, name, points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places))
        for about, (x, y) in zip(abouts, places, strict=True):
            if form.type == "line":
                yield _shape("circle", kind, about, cx=x, cy=y, r=3.5)
            else:
                left, zero = x - scale.step * 0.4 + width * number, scale.y(0)
                yield _shape("rect", kind, about, x=left, y=min(y, zero), width=width, height=abs(y - zero))


def _written(number: float) -> str:
    return f"{number:,.10g}"


def csv_table(text: str) -> Markup | None:
    """The rows of a CSV text under its first line, to be sorted; None if it isn't one, or is too large."""
    head, _, _ = text.partition("\n")
    delimiter = max(",;\t", key=head.count)
    try:
        names, *rows = filter(None, csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=True))
    except (csv.Error, ValueError):
        return None
    fits = len(rows) <= MAX_ROWS and len(names) * len(rows) <= MAX_CELLS and len({len(names), *map(len, rows)}) == 1
    return _table(names, rows) if fits and len(names) > 1 and rows else None


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    numeric = [all(map(_is_number, column)) for column in zip(*rows, strict=True)]
    classes = [Markup(' class="right"') if right else "" for right in numeric]
    head = [
        Markup('<th{}><button type="button" data-sort>{}</button></th>').format(*each)
        for each in zip(classes, names, strict=True)
    ]
    body = [
        Markup("<tr>{}</tr>").format(
            Markup().join(Markup("<td{}>{}</td>").format(*each) for each in zip(classes, row, strict=True))
        )
        for row in rows
    ]
    return Markup(
        '<div class="table" role="group" aria-label="Table" tabindex="0"><table class="sorts">'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>\n"
    ).format(Markup().join(head), Markup().join(body))


def _is_number(cell: str) -> bool:
    return not cell or cell.replace(",", "").replace(".", "", 1).removeprefix("-").isdecimal()
