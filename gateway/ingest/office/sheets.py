"""Spreadsheets: Excel's of today, binary ones, and those of Excel 97 to 2003."""

import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.ingest.archive import checked_zip
from gateway.ingest.office.parts import add_parts
from gateway.ingest.output import MAX_COLUMNS, MAX_ROWS, Output, Unreadable

if TYPE_CHECKING:
    from openpyxl import Workbook


MAX_DENSE_BYTES = 20 * 1024**2
"""Bytes of a workbook that is unpacked in memory."""


def read_xlsx(source: Path, out: Output) -> str:
    """Read each sheet as a page, then comments, charts and pictures; returns the description.

    A formula without a value, or with the value 0, which some programs write for all, is shown itself.
    """
    with checked_zip(source, office=True) as archive:
        sheets: dict[str, list[str]] = {}
        has_formulas = _has_formulas(archive)
        # Unusual styles and the Strict variant are too much for the library that streams.
        with suppress(Exception):
            sheets = dict(_streamed(source, has_formulas))
        if any(sheets.values()):
            description = _added(sheets, out)
        else:
            description = _read_values(source, out)
            out.problem = out.problem or "formulas were read by their last values only" * has_formulas
        add_parts(archive, out)
    return description


def read_xlsb(source: Path, out: Output) -> str:
    """Read a binary workbook (.xlsb) by its values; returns the description."""
    import python_calamine

    with checked_zip(source, office=False) as archive:
        try:
            description = _read_values(source, out)
        except (python_calamine.CalamineError, OSError, ValueError):
            raise Unreadable("this binary workbook (.xlsb) can't be read; save it as .xlsx") from None
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
    return _added({name: [_row_text(row[:MAX_COLUMNS]) for row in found] for name, found in rows.items()}, out)


def _added(sheets: dict[str, list[str]], out: Output) -> str:
    told = []
    for title, found in sheets.items():
        if len(found) > MAX_ROWS:
            out.problem = f"only the first {MAX_ROWS:,} rows of each sheet were read"
        lines = list(filter(None, found[:MAX_ROWS]))
        told.append(f"{title} ({len(lines):,} rows)")
        out.add("\n".join([f"## {title}", *lines]))
    return f"spreadsheet: {', '.join(told)}"


def _has_formulas(archive: zipfile.ZipFile) -> bool:
    sheets = (name for name in archive.NameToInfo if name.startswith("xl/worksheets/"))
    return any(b"<f>" in (part := archive.read(name)) or b"<f " in part for name in sheets)


def _streamed(source: Path, formulas: bool) -> Iterator[tuple[str, list[str]]]:
    import openpyxl

    with source.open("rb") as file:
        values = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        with source.open("rb") as again:
            shown = openpyxl.load_workbook(again, read_only=True, keep_links=False) if formulas else None
            for index, sheet in enumerate(values.worksheets):
                meant = _cells(shown, index) if shown else ()
                rows = zip_longest(_cells(values, index), meant, fillvalue=())
                yield sheet.title, [_row_text(_chosen(*row) if shown else row[0]) for row in rows]


def _cells(book: "Workbook", index: int) -> Iterator[Iterable[object]]:
    sheet = book.worksheets[index]
    # Its stated size isn't reliable: it may be missing, or a million columns.
    sheet.reset_dimensions()
    yield from islice(sheet.iter_rows(max_row=MAX_ROWS + 1, max_col=MAX_COLUMNS, values_only=True), MAX_ROWS + 1)


def _chosen(values: Iterable[object], formulas: Iterable[object]) -> Iterator[object]:
    for value, formula in zip_longest(values, formulas):
        text = str(getattr(formula, "text", formula) or "")
        if value in (None, "", 0) and text.startswith("="):
            yield text if value in (None, "") else f"{value} ({text})"
        else:
            yield value


def _row_text(row: Iterable[object]) -> str:
    """A row without line breaks and trailing empty cells."""
    cells = ["" if value is None else " ".join(_shown(value).split()) for value in row]
    while cells and not cells[-1]:
        cells.pop()
    return " | ".join(cells)


def _shown(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)
