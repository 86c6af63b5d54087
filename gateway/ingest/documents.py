"""Word documents and slides, OpenDocument files, rich text, and what Office files hold beside the main text."""

import io
import re
import zipfile
from collections.abc import Callable, Iterator
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gateway.ingest.archive import checked_zip, xml_part
from gateway.ingest.output import Output, Unreadable
from gateway.ingest.text import html_text, parsed_html, start_of

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


_MAIN = "word/document.xml"
_FORMS = {"sup": "^({})", "sub": "_({})", "num": "({})", "den": "/({})", "rad": "√({})"}
"""Elements of equations as text."""
_AROUND = [f"{{*}}{name}" for name in ("moveTo", "fldSimple", "customXml", "bdo", "dir", "ruby", "rubyBase")]
"""Elements around text that the library leaves out with all that is in them."""


def read_docx(source: Path, out: Output) -> str:
    """Read the text, with equations and boxes, then its pictures and the rest; returns the description."""
    import mammoth

    with checked_zip(source, office=True) as archive:
        file = _with_equations(archive, out) if _MAIN in archive.NameToInfo else io.BytesIO(source.read_bytes())
        alone = mammoth.images.img_element(lambda _: {})  # the description; the picture is read as a file
        html = mammoth.convert_to_html(file, convert_image=alone, external_file_access=False).value
        out.add(html_text(parsed_html(html)))
        add_parts(archive, out)
    return f"Word document: {out.first_line()}"


def _with_equations(archive: zipfile.ZipFile, out: Output) -> io.BytesIO:
    """The document with equations as text; counts the passages that a tracked change deletes."""
    from lxml import etree

    root = xml_part(archive, _MAIN)
    deleted = sum(any(True for _ in each.iter("{*}delText")) for each in root.iter("{*}del"))
    out.leave_out("deleted passage (tracked change)", deleted)
    space = str(root.tag).rpartition("}")[0] + "}"
    for around in root.iter(*_AROUND):
        around.tag = space + "ins"
    for equation in list(root.iter("{*}oMath")):
        text = _equation(equation)
        run = etree.Element(space + "r")
        etree.SubElement(run, space + "t").text = text
        if (parent := equation.getparent()) is not None:
            run.tail = equation.tail
            # An equation on a line of its own stands in an element that isn't read.
            if str(parent.tag).endswith("}oMathPara") and (outer := parent.getparent()) is not None:
                outer.insert(outer.index(parent), run)
            else:
                parent.replace(equation, run)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as copy:
        for name in archive.NameToInfo:
            copy.writestr(name, etree.tostring(root) if name == _MAIN else archive.read(name))
    return file


def _equation(element: "_Element") -> str:
    name = str(element.tag).rpartition("}")[2]
    text = (element.text or "") if name == "t" else "".join(map(_equation, element))
    return _FORMS[name].format(text) if name in _FORMS and len(text) else text


_MAX_VALUES = 2_000
"""Of one series of a chart."""


class Use(Enum):
    """A part that isn't read here."""

    MAIN = auto()
    """The reader of the kind reads it."""
    FORM = auto()
    """It says how the file looks or behaves, and holds no words of its own."""
    FILE = auto()
    """A file of its own: a picture, or what is embedded."""


def _name(element: "_Element") -> str:
    return str(element.tag).rpartition("}")[2]


def _attribute(element: "_Element", name: str) -> str:
    return next((str(value) for key, value in element.attrib.items() if str(key).rpartition("}")[2] == name), "")


def _words(root: "_Element") -> str:
    """The text by paragraphs."""
    paragraphs = ("".join(each.text or "" for each in part.iter("{*}t")) for part in root.iter("{*}p"))
    return "\n".join(filter(str.strip, paragraphs))


def _line(root: "_Element") -> str:
    return " ".join("".join(each.text or "" for each in root.iter("{*}t", "{*}text")).split())


def _header(root: "_Element") -> str:
    text = " | ".join(_words(root).splitlines())
    return f"[{'header' if _name(root) == 'hdr' else 'footer'}: {text}]" if text else ""


def _links(root: "_Element") -> str:
    outside = (each for each in root if _attribute(each, "Type").endswith("/hyperlink"))
    return "\n".join(f"[link: {_attribute(each, 'Target')}]" for each in outside if _attribute(each, "TargetMode"))


def _comments(root: "_Element") -> str:
    return "\n".join(_comment(each) for each in root.iter("{*}comment", "{*}cm", "{*}threadedComment"))


def _comment(comment: "_Element") -> str:
    author, place = _attribute(comment, "author"), _attribute(comment, "ref")
    text = _line(comment) or " ".join("".join(comment.itertext()).split())
    return f"[comment{f' by {author}' if author else ''}{f' on {place}' if place else ''}: {text}]"


def _chart(root: "_Element") -> str:
    titles = ", ".join(filter(None, map(_line, root.iter("{*}title"))))
    return "\n".join([f"[chart: {titles or 'without a title'}]", *map(_series, root.iter("{*}ser"))])


def _series(series: "_Element") -> str:
    name, labels, values = (", ".join(_values(series, tags)) for tags in (("tx",), ("cat", "xVal"), ("val", "yVal")))
    return f"{name or 'series'}: {values}" + (f" (for {labels})" if labels else "")


def _values(series: "_Element", tags: tuple[str, ...]) -> Iterator[str]:
    found = [each.text or "" for part in series if _name(part) in tags for each in part.iter("{*}v")]
    yield from found[:_MAX_VALUES]


_Words: TypeAlias = Callable[["_Element"], str]

PARTS: tuple[tuple[str, "Use | _Words | str"], ...] = (
    (r"(?:ppt/slides|xl/worksheets)/_rels/.*\.rels", _links),
    (r"\[Content_Types\]\.xml|.*\.rels|(?:docProps|customXml|_xmlsignatures)/.*|.*/", Use.FORM),
    (r"\w+/(?:document|footnotes|endnotes|presentation|workbook|sharedStrings)\d*\.(?:xml|bin)", Use.MAIN),
    (r"ppt/(?:slides|notesSlides)/[^/]*\.xml|xl/worksheets/[^/]*\.(?:xml|bin)", Use.MAIN),
    (r"word/(?:header|footer)\d*\.xml", _header),
    (r"word/comments\d*\.xml|xl/(?:comments|threadedComments/.*)\d*\.xml", _comments),
    (r"(?:xl|ppt)/comments/.*\.xml", _comments),
    (r"\w+/charts/chart\d*\.xml", _chart),
    (r"\w+/drawings/drawing\d*\.xml|\w+/diagrams/data\d*\.xml", _words),
    (r"\w+/media/.*|\w+/embeddings/.*\.(?:docx|xlsx|pptx|xlsm|docm|pdf)", Use.FILE),
    (r"\w+/(?:styles|stylesWithEffects|settings|webSettings|fontTable|numbering|people)\.(?:xml|bin)", Use.FORM),
    (r"\w+/(?:theme|fonts|printerSettings|webextensions|activeX|ctrlProps|persons|customUI)/.*", Use.FORM),
    (r"word/(?:commentsExtended|commentsIds|commentsExtensible)\.xml|word/glossary/.*", Use.FORM),
    (r"ppt/(?:slideLayouts|slideMasters|notesMasters|handoutMasters|tags|changesInfos)/.*", Use.FORM),
    (r"ppt/(?:\w+Props|tableStyles|revisionInfo|commentAuthors|authors)\.xml", Use.FORM),
    (r"\w+/charts/(?:style|colors)\d*\.xml|\w+/diagrams/(?:layout|quickStyle|colors|drawing)\d*\.xml", Use.FORM),
    (r"xl/(?:calcChain|metadata|volatileDependencies)\.(?:xml|bin)|\w+/drawings/vmlDrawing.*", Use.FORM),
    (r"xl/(?:tables|queryTables|richData|pivotCache|chartsheets)/.*|xl/worksheets/binaryIndex.*", Use.FORM),
    (r"\w+/(?:vbaProject\.bin|vbaData\.xml|vbaProjectSignature.*)|xl/macrosheets/.*", "macro"),
    (r"xl/pivotTables/.*", "pivot table"),
    (r"xl/externalLinks/.*", "linked workbook"),
    (r"\w+/charts/.*", "chart of a new kind"),
    (r"\w+/embeddings/.*", "embedded object"),
    (r"\w+/ink/.*", "handwritten note"),
    (r"word/afchunk.*", "inserted file"),
)
"""The first pattern that matches a part's name decides; a text says what is left out."""


def use_of(name: str) -> "Use | _Words | str":
    """The use of a part, by its name."""
    return next((use for pattern, use in PARTS if re.fullmatch(pattern, name, re.IGNORECASE)), "unrecognised part")


def add_parts(archive: zipfile.ZipFile, out: Output) -> None:
    """Add headers, footers, comments, charts and words in drawings as a page, pictures and files inside as more."""
    texts, files = [], []
    for name in archive.NameToInfo:  # each once: a name that is listed often would be unpacked as often
        use = use_of(name)
        if use is Use.FILE:
            files.append(name)
        elif isinstance(use, str):
            out.leave_out(use)
        elif not isinstance(use, Use):
            texts.append(use(xml_part(archive, name)))
    if found := "\n".join(filter(None, dict.fromkeys(texts))):
        out.add(found)
    for name in files:
        out.add_file(name.rpartition("/")[2], archive.read(name))
