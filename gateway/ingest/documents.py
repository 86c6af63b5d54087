"""Word documents, PowerPoint slides (Office Open XML), OpenDocument files, and letters."""

from collections.abc import Iterator
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.ingest import archive
from gateway.ingest.html import parsed, text_of
from gateway.ingest.output import Output
from gateway.ingest.text import start_of

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
"""OpenDocument's elements; what was deleted and what was remarked is not read."""


def read_docx(source: Path, out: Output) -> str:
    """The description; pictures are left out, nothing outside the file is opened."""
    import mammoth

    with archive.checked(source, office=True), source.open("rb") as file:
        html = mammoth.convert_to_html(file, convert_image=lambda _: [], external_file_access=False).value
    out.add(text_of(parsed(html)))
    return f"Word document: {out.first_line()}"


def read_pptx(source: Path, out: Output) -> str:
    """The description; a slide is a page, with its notes."""
    import pptx

    with archive.checked(source, office=True):
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
        # A group's shapes take its place.
        shapes.extend(reversed(getattr(shape, "shapes", ())))
        if isinstance(shape, GraphicFrame) and shape.has_table:
            yield "\n".join(" | ".join(cell.text for cell in row.cells) for row in shape.table.rows)
        elif isinstance(shape, Shape):
            yield shape.text_frame.text
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None and notes.text.strip():
        yield f"Notes: {notes.text}"


def read_odf(source: Path, out: Output) -> str:
    """The description; a sheet or a slide is a page."""
    with archive.checked(source) as document:
        body = next(archive.xml(document, "content.xml").iter("{*}body"))[0]
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
    return text_of(part)


def read_mail(source: Path, out: Output) -> str:
    """The description; attachments are named, not read."""
    message = BytesParser(EmailMessage, policy=policy.default).parsebytes(start_of(source, out))
    lines = [f"{name}: {message[name]}" for name in ("From", "To", "Cc", "Date", "Subject") if message[name]]
    if names := [part.get_filename() or "without a name" for part in message.iter_attachments()]:
        lines.append(f"Attached: {', '.join(names)}")
    if body := message.get_body(("plain", "html")):
        content = str(body.get_content())
        lines += ["", text_of(parsed(content)) if body.get_content_subtype() == "html" else content]
    out.add("\n".join(lines))
    return f"e-mail from {message['From']}: {message['Subject']}"
