"""Spreadsheets: a sheet is a page, a row is a line."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from gateway.ingest import archive
from gateway.ingest.limits import COLUMNS, ROWS
from gateway.ingest.output import Output


def read_xlsx(source: Path, out: Output) -> str:
    """The description; a formula is its last value."""
    import openpyxl

    told = []
    with archive.checked(source, office=True), source.open("rb") as file:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        for sheet in book.worksheets:
            # What it says of its size is not believed: it may say nothing, or a million columns.
            sheet.reset_dimensions()
            rows = sheet.iter_rows(max_row=ROWS + 1, max_col=COLUMNS, values_only=True)
            found = [_line(row) for row in islice(rows, ROWS + 1)]
            if len(found) > ROWS:
                out.problem = f"only the first {ROWS:,} rows of each sheet were read"
            lines = list(filter(None, found[:ROWS]))
            told.append(f"{sheet.title} ({len(lines):,} rows)")
            out.add("\n".join([f"## {sheet.title}", *lines]))
    return f"spreadsheet: {', '.join(told)}"


def _line(row: Iterable[object]) -> str:
    """Empty cells at the end are left out, and so are line breaks."""
    cells = ["" if value is None else " ".join(str(value).split()) for value in row]
    while cells and not cells[-1]:
        cells.pop()
    return " | ".join(cells)
