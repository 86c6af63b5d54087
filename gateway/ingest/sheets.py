"""Spreadsheets: Excel's of today, binary ones, and those of Excel 97 to 2003."""

import html
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, time
from functools import lru_cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from zipfile import ZipFile

from gateway.ingest.archive import checked_zip
from gateway.ingest.documents import add_parts
from gateway.ingest.output import MAX_COLUMNS, MAX_ROWS, Output, Unreadable

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.cell.read_only import EmptyCell, ReadOnlyCell

    AnyCell: TypeAlias = EmptyCell | ReadOnlyCell


_DIGITS = re.compile(r"[#0?][#0?,]*(?:\.[#0?]+)?")
_EDGE = re.compile(rb"<(?:\w+:)?(?:odd|even|first)(Header|Footer)[^<>]*>([^<]+)<")
_EDGE_CODE = re.compile(r'(?<!&)&(?:"[^"]*"|K[\dA-Fa-f]{6}|\d+|[A-Z])')
_SYMBOL = re.compile(r'\[\$([^\]-]*)[^\]]*\]|"([^"]*)"')
"""A currency with its locale, and literal text, of a format (ECMA-376-1, 18.8.31)."""
_UNSEEN = re.compile(r"\[(?!\$)[^\]]*\]|[_*].|\\(?=.)")
"""Colours, conditions, padding and escapes."""
MAX_DENSE_BYTES = 20 * 1024**2
"""Bytes of a workbook that is unpacked in memory."""


def read_xlsx(source: Path, out: Output) -> str:
    """Read each sheet as a page, then comments, charts and pictures; returns the description.

    A formula without a value, or with the value 0, which some programs write for all, is shown itself.
    """
    with checked_zip(source, office=True) as archive:
        sheets: dict[str, list[str]] = {}
        parts = (archive.read(name) for name in archive.NameToInfo if name.startswith("xl/worksheets/"))
        has_formulas = any(b"<f>" in part or b"<f " in part for part in parts)
        # Unusual styles and the Strict variant are too much for the library that streams.
        with suppress(Exception):
            sheets = dict(_streamed(source, has_formulas))
        if any(sheets.values()):
            description = _added(sheets, out)
        else:
            description = _read_values(source, out)
            out.problem = out.problem or "formulas were read by their last values only" * has_formulas
        add_parts(archive, out, _edges(archive))
    return description


def _edges(archive: ZipFile) -> Iterator[str]:
    """Headers and footers of the printed sheets, without fonts and fields (ECMA-376-1, 18.3.1.46)."""
    for name in filter(re.compile("xl/worksheets/").match, archive.NameToInfo):
        for kind, code in _EDGE.findall(archive.read(name)):
            words = _EDGE_CODE.sub(" ", html.unescape(code.decode("utf-8", "replace"))).replace("&&", "&").split()
            yield f"[{kind.decode().lower()}: {' '.join(words)}]" if words else ""


def read_xlsb(source: Path, out: Output) -> str:
    """Read a binary workbook (.xlsb) by its values; returns the description."""
    with checked_zip(source, office=False) as archive:
        description = _read_values(source, out)
        add_parts(archive, out)
    return description


def read_xls(source: Path, out: Output) -> str:
    """Read the values of a workbook of Excel 97 to 2003; returns the description."""
    description = _read_values(source, out)
    out.problem = out.problem or "only the values were read of this old format; save it as .xlsx for the rest"
    return description


def _read_values(source: Path, out: Output) -> str:
    """Read a workbook of any format; returns the description. Raises what the library raises."""
    import python_calamine

    if source.stat().st_size > MAX_DENSE_BYTES:
        raise Unreadable(f"workbooks of this format are read up to {MAX_DENSE_BYTES >> 20} MB; save it as .xlsx")
    with source.open("rb") as file:
        book = python_calamine.CalamineWorkbook.from_filelike(file)
        rows = {name: book.get_sheet_by_name(name).to_python(nrows=MAX_ROWS + 1) for name in book.sheet_names}
    return _added({name: list(map(_row_text, found)) for name, found in rows.items()}, out)


def _added(sheets: dict[str, list[str]], out: Output) -> str:
    told = []
    for title, found in sheets.items():
        if len(found) > MAX_ROWS:
            out.problem = f"only the first {MAX_ROWS:,} rows of each sheet were read"
        lines = list(filter(None, found[:MAX_ROWS]))
        told.append(f"{title} ({len(lines):,} rows)")
        out.add("\n".join([f"## {title}", *lines]))
    return f"spreadsheet: {', '.join(told)}"


def _streamed(source: Path, formulas: bool) -> Iterator[tuple[str, list[str]]]:
    import openpyxl

    with source.open("rb") as file:
        values = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        with source.open("rb") as again:
            shown = openpyxl.load_workbook(again, read_only=True, keep_links=False) if formulas else None
            for index, sheet in enumerate(values.worksheets):
                meant = _cells(shown, index) if shown else ()
                rows = zip_longest(_cells(values, index), meant, fillvalue=())
                yield sheet.title, [_row_text(_chosen(*row)) for row in rows]


def _cells(book: "Workbook", index: int) -> Iterator[Iterable["AnyCell"]]:
    sheet = book.worksheets[index]
    # Its stated size isn't reliable: it may be missing, or a million columns.
    sheet.reset_dimensions()
    yield from islice(sheet.iter_rows(max_row=MAX_ROWS + 1, max_col=MAX_COLUMNS + 1), MAX_ROWS + 1)


def _chosen(cells: Iterable["AnyCell"], formulas: Iterable["AnyCell"]) -> Iterator[object]:
    for cell, formula in zip_longest(cells, formulas):
        value = cell.value if cell else None
        text = _formula(formula.value) if formula else ""
        if text and (value in (None, "", 0) or text.startswith("=HYPERLINK(")):
            yield text if value in (None, "") else f"{value} ({text})"
        elif cell and isinstance(value, int | float) and not isinstance(value, bool):
            yield formatted(value, cell.number_format or "General")
        else:
            yield value


def _formula(meant: object) -> str:
    text = str(getattr(meant, "text", meant) or "")
    return text if text.startswith("=") else ""


def formatted(number: float, number_format: str) -> object:
    """A number as Excel shows it: percent, currency, its decimals and separators; else as it is."""
    positive, *others = number_format.split(";")
    own_sign = number < 0 and bool(others)
    if number_format == "General" or not (form := _form(others[0] if own_sign else positive)):
        return number
    before, digits, after = form
    whole, _, decimals = digits.partition(".")
    value = (abs(number) if own_sign else number) * (100 if "%" in before + after else 1)
    text = f"{value:{',' * (',' in whole)}.{len(decimals)}f}"
    return f"{before}{text.zfill(len(digits) if set(whole) == {'0'} else 0)}{after}".strip()


@lru_cache(1000)
def _form(section: str) -> tuple[str, str, str] | None:
    """The text before the digits of a format, the digits, and the text after them; None for all other formats."""
    seen = _SYMBOL.sub(lambda found: found[1] or found[2] or "", _UNSEEN.sub("", section))
    digits = _DIGITS.search(seen)
    if digits is None or _DIGITS.search(seen, digits.end()):  # a fraction, an exponent, a telephone number
        return None
    return seen[: digits.start()], digits[0], seen[digits.end() :]


def _row_text(row: Iterable[object]) -> str:
    """A row without line breaks and trailing empty cells; of a long one its beginning, with a note."""
    cells = ["" if value is None else " ".join(_shown(value).split()) for value in row]
    while cells and not cells[-1]:
        cells.pop()
    if cells[MAX_COLUMNS:]:
        cells[MAX_COLUMNS:] = [f"[columns after the first {MAX_COLUMNS} were not read]"]
    return " | ".join(cells)


def _shown(value: object) -> str:
    if isinstance(value, datetime) and value.time() == time():
        return str(value.date())
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)
