"""Slides (Office Open XML), OpenDocument files and rich text."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.ingest.archive import checked_zip, xml_part
from gateway.ingest.office.parts import add_parts
from gateway.ingest.output import Output, Unreadable
from gateway.ingest.text import html_text, start_of

if TYPE_CHECKING:
    from lxml.etree import _Element
    from pptx.slide import Slide


_MANIFEST = "META-INF/manifest.xml"
_AS_HTML = {
    "h": "h1",
    "p": "p",
    "a": "a",
    "line-break": "br",
    "list-item": "li",
    "table-row": "tr",
    "table-cell": "td",
    "tracked-changes": "script",
    "annotation": "blockquote",
}
"""OpenDocument's elements as HTML's; deletions are skipped."""


_BESIDE_RTF = re.compile(r"(?<!nonshppict{)\\(pict|object|footnote|annotation|header|footer)[lrf]?(?![a-z])")
"""Control words of groups beside the text (Rich Text Format 1.9.1)."""


def read_rtf(source: Path, out: Output) -> str:
    """Read the text, and count what stands beside it as left out; returns the description."""
    from striprtf.striprtf import rtf_to_text

    raw = start_of(source, out).decode("latin-1")
    for word in _BESIDE_RTF.findall(raw):
        out.leave_out({"pict": "picture", "annotation": "comment"}.get(word, word))
    out.add(rtf_to_text(raw, errors="replace"))
    return f"rich text: {out.first_line()}"


def read_pptx(source: Path, out: Output) -> str:
    """Read each slide, with its notes, as a page; returns the description."""
    from pptx.package import Package

    with checked_zip(source, office=True) as archive:
        # `pptx.Presentation` refuses slide shows and templates.
        slides = Package.open(str(source)).main_document_part.presentation.slides
        for slide in slides:
            out.add("\n\n".join(filter(None, _slide(slide))))
        add_parts(archive, out)
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
        if _MANIFEST in document.NameToInfo and b"encryption-data" in document.read(_MANIFEST):
            raise Unreadable("it has a password of OpenDocument's kind; save a copy without it, or as .docx or PDF")
        body = next(xml_part(document, "content.xml").iter("{*}body"))[0]
        deleted = sum(1 for _ in body.iter("{*}deletion"))
        pictures = [(name, document.read(name)) for name in document.namelist() if name.startswith("Pictures/")]
        objects = sum(bool(re.fullmatch(r"Object[^/]*/content\.xml", name)) for name in document.namelist())
        master = xml_part(document, "styles.xml") if "styles.xml" in document.NameToInfo else body
        edges = [each for each in master.iter("{*}header", "{*}footer") if "".join(each.itertext()).strip()]
    kind = body.tag.rpartition("}")[2]
    for part in [body] if kind == "text" else body.iterchildren("{*}table", "{*}page"):
        name = next((value for key, value in part.attrib.items() if key.endswith("}name")), "")
        out.add((f"## {name}\n" if name else "") + _odf_text(part))
    description = f"OpenDocument {kind}, {out.pages} page{'s' * (out.pages != 1)}: {out.first_line()}"
    if edges:
        out.add("\n".join(f"[{each.tag.rpartition('}')[2]}: {_odf_text(each)}]" for each in edges))
    out.leave_out("deleted passage (tracked change)", deleted)
    out.leave_out("embedded object", objects)
    for name, content in pictures:
        out.add_file(name.rpartition("/")[2], content)
    return description


def _odf_text(part: "_Element") -> str:
    for element in part.iter("{*}*"):
        name = element.tag.rpartition("}")[2]
        element.tag = _AS_HTML.get(name, "span")
        element.set("href", element.get("{http://www.w3.org/1999/xlink}href", ""))
        if name in {"s", "tab"}:
            element.text = " "
    return html_text(part)
