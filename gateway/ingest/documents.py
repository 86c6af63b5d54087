"""Word documents, slides and spreadsheets (Office Open XML), OpenDocument files, and e-mails."""

from collections.abc import Iterable, Iterator
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.ingest.archive import checked_zip, xml_part
from gateway.ingest.output import MAX_COLUMNS, MAX_ROWS, Output
from gateway.ingest.text import html_text, parsed_html, start_of

if TYPE_CHECKING:
    from lxml.etree import _Element
    from pptx.slide import Slide


_AS_HTML = {
    "h": "h1",
    "p": "p",
    "line-break": "br",
    "list-item": "li",
    "table-row": "tr",
    "table-cell": "td",
    "tracked-changes": "script",
    "annotation": "script",
}
"""OpenDocument's elements as HTML's; deletions and comments are skipped."""


def read_docx(source: Path, out: Output) -> str:
    """Read the text, without pictures or outside references; returns the description."""
    import mammoth

    with checked_zip(source, office=True), source.open("rb") as file:
        html = mammoth.convert_to_html(file, convert_image=lambda _: [], external_file_access=False).value
    out.add(html_text(parsed_html(html)))
    return f"Word document: {out.first_line()}"


def read_pptx(source: Path, out: Output) -> str:
    """Read each slide, with its notes, as a page; returns the description."""
    import pptx

    with checked_zip(source, office=True):
        slides = pptx.Presentation(str(source)).slides
    for slide in slides:
        out.add("\n\n".join(filter(None, _slide(slide))))
    return f"slides, {len(slides)}: {out.first_line()}"


def _slide(slide: "Slide") -> Iterator[str]:
    from pptx.shapes.autoshape import Shape
    from pptx.shapes.graphfrm import GraphicFrame

    shapes = list(reversed(slide.shapes))
    while shapes:
        shape = shapes.pop()
        # The shapes of a group replace it.
        shapes.extend(reversed(getattr(shape, "shapes", ())))
        if isinstance(shape, GraphicFrame) and shape.has_table:
            yield "\n".join(" | ".join(cell.text for cell in row.cells) for row in shape.table.rows)
        elif isinstance(shape, Shape):
            yield shape.text_frame.text
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None and notes.text.strip():
        yield f"Notes: {notes.text}"


def read_odf(source: Path, out: Output) -> str:
    """Read each sheet or slide as a page; returns the description."""
    with checked_zip(source, office=False) as document:
        body = next(xml_part(document, "content.xml").iter("{*}body"))[0]
    kind = body.tag.rpartition("}")[2]
    for part in [body] if kind == "text" else body.iterchildren("{*}table", "{*}page"):
        name = next((value for key, value in part.attrib.items() if key.endswith("}name")), "")
        out.add((f"## {name}\n" if name else "") + _odf_text(part))
    return f"OpenDocument {kind}, {out.pages} page{'s' * (out.pages != 1)}: {out.first_line()}"


def _odf_text(part: "_Element") -> str:
    for element in part.iter("{*}*"):
        name = element.tag.rpartition("}")[2]
        element.tag = _AS_HTML.get(name, "span")
        if name in {"s", "tab"}:
            element.text = " "
    return html_text(part)


def read_mail(source: Path, out: Output) -> str:
    """Read the text and name the attachments; returns the description."""
    message = BytesParser(EmailMessage, policy=policy.default).parsebytes(start_of(source, out))
    lines = [f"{name}: {message[name]}" for name in ("From", "To", "Cc", "Date", "Subject") if message[name]]
    if names := [part.get_filename() or "without a name" for part in message.iter_attachments()]:
        lines.append(f"Attached: {', '.join(names)}")
    if body := message.get_body(("plain", "html")):
        content = str(body.get_content())
        lines += ["", html_text(parsed_html(content)) if body.get_content_subtype() == "html" else content]
    out.add("\n".join(lines))
    return f"e-mail from {message['From']}: {message['Subject']}"


def read_xlsx(source: Path, out: Output) -> str:
    """Read each sheet as a page, formulas as their last values; returns the description."""
    import openpyxl

    sheets = []
    with checked_zip(source, office=True), source.open("rb") as file:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        for sheet in book.worksheets:
            # Its stated size isn't reliable: it may be missing, or a million columns.
            sheet.reset_dimensions()
            rows = sheet.iter_rows(max_row=MAX_ROWS + 1, max_col=MAX_COLUMNS, values_only=True)
            found = [_row_text(row) for row in islice(rows, MAX_ROWS + 1)]
            if len(found) > MAX_ROWS:
                out.problem = f"only the first {MAX_ROWS:,} rows of each sheet were read"
            lines = list(filter(None, found[:MAX_ROWS]))
            sheets.append(f"{sheet.title} ({len(lines):,} rows)")
            out.add("\n".join([f"## {sheet.title}", *lines]))
    return f"spreadsheet: {', '.join(sheets)}"


def _row_text(row: Iterable[object]) -> str:
    """A row without line breaks and trailing empty cells."""
    cells = ["" if value is None else " ".join(str(value).split()) for value in row]
    while cells and not cells[-1]:
        cells.pop()
    return " | ".join(cells)
