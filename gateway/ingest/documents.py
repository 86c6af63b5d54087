"""Word documents and slides, OpenDocument files, rich text, and what Office files hold beside the main text."""

import io
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum, auto
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gateway.ingest.archive import checked_zip, xml_part
from gateway.ingest.output import MAX_COLUMNS, Output, Unreadable
from gateway.ingest.text import html_text, numeral, parsed_html, start_of

if TYPE_CHECKING:
    from lxml.etree import _Element

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
_SLIDE = {"sp": "p", "p": "div", "br": "br", "tr": "tr", "tc": "td", "cNvPr": "img"}
_SLIDE |= dict.fromkeys(("Fallback", "tableStyleId", "delText", "instrText"), "head")
"""The same for slides, and for the words of a document; what stands there for old programs is skipped."""


_BESIDE_RTF = re.compile(r"(?<!nonshppict{)\\(pict|object|footnote|annotation|header|footer|shptxt)[lrf]?(?![a-z])")
"""Control words of groups beside the text (Rich Text Format 1.9.1)."""


def read_rtf(source: Path, out: Output) -> str:
    """Read the text, and count what stands beside it as left out; returns the description."""
    from striprtf.striprtf import rtf_to_text

    raw = start_of(source, out).decode("latin-1")
    for word in _BESIDE_RTF.findall(raw):
        out.leave_out({"pict": "picture", "annotation": "comment", "shptxt": "text box"}.get(word, word))
    text = rtf_to_text(raw, errors="replace")
    links = (link for link in dict.fromkeys(re.findall(r'HYPERLINK\s+"([^"]+)', raw)) if link not in text)
    out.add("\n".join([text, *(f"[link: {link}]" for link in links)]))
    return f"rich text: {out.first_line()}"


def read_pptx(source: Path, out: Output) -> str:
    """Read each slide, with its notes, as a page; returns the description."""
    from pptx.package import Package

    with checked_zip(source, office=True) as archive:
        # `pptx.Presentation` refuses slide shows and templates.
        slides = Package.open(str(source)).main_document_part.presentation.slides
        for slide in slides:
            notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
            said = f"Notes: {notes.text}" if notes is not None and notes.text.strip() else ""
            root = xml_part(archive, slide.part.partname[1:])
            for equation in root.iter("{*}oMath"):
                equation.text, equation[:] = _equation(equation), []
            out.add("\n\n".join(filter(None, (_as_page(root[0], _SLIDE), said))))
        add_parts(archive, out)
    return f"slides, {len(slides)}: {out.first_line()}"


def read_odf(source: Path, out: Output) -> str:
    """Read each sheet or slide as a page; returns the description."""
    with checked_zip(source, office=False) as document:
        if _MANIFEST in document.NameToInfo and b"encryption-data" in document.read(_MANIFEST):
            raise Unreadable("it has a password of OpenDocument's kind; save a copy without it, or as .docx or PDF")
        body = next(xml_part(document, "content.xml").iter("{*}body"))[0]
        out.leave_out("deleted passage (tracked change)", sum(1 for _ in body.iter("{*}deletion")))
        files = [(name, document.read(name)) for name in document.NameToInfo if re.match("(?i:pictures|media)/.", name)]
        objects = [name for name in document.NameToInfo if re.fullmatch(r"Object[^/]*(?:/content\.xml)?", name)]
        out.leave_out("embedded object", len(objects))
        master = xml_part(document, "styles.xml") if "styles.xml" in document.NameToInfo else body
        edges = [each for each in master.iter("{*}header", "{*}footer") if "".join(each.itertext()).strip()]
    kind = _name(body)
    _write_out(body)
    for part in [body] if kind == "text" else body.iterchildren("{*}table", "{*}page"):
        name = _attribute(part, "name")
        out.add((f"## {name}\n" if name else "") + _as_page(part, _AS_HTML))
    description = f"OpenDocument {kind}, {out.pages} page{'s' * (out.pages != 1)}: {out.first_line()}"
    if edges:
        out.add("\n".join(f"[{_name(each)}: {_as_page(each, _AS_HTML)}]" for each in edges))
    for name, content in files:
        out.add_file(name.rpartition("/")[2], content)
    return description


def _write_out(sheet: "_Element") -> None:
    """Write equal cells as often as they are there, and the values of cells that have no text."""
    for cell in sheet.iter("{*}table-cell"):
        values = (str(value) for key, value in cell.attrib.items() if re.search(r"\b(?:\w+-)?value$", str(key)))
        words = " ".join("".join(cell.itertext()).split()) or next(values, "")
        times = min(int(_attribute(cell, "number-columns-repeated") or 1), MAX_COLUMNS)
        if (words or cell.getnext() is not None) and (times > 1 or not len(cell)):
            cell.text, cell[:] = " | ".join([words] * times), []
    for row in sheet.iter("{*}table-row"):
        if (rows := _attribute(row, "number-rows-repeated")) and "".join(row.itertext()).strip(" |"):
            row.tail = f"[{rows} such rows]"


def _as_page(part: "_Element", tags: Mapping[str, str]) -> str:
    """The text, with elements as those of HTML by `tags`."""
    for element in part.iter("{*}*"):
        name = _name(element)
        element.set("href", _attribute(element, "href"))
        element.set("alt", _attribute(element, "descr"))
        element.text = " " if name in {"s", "tab"} else element.text or _attribute(element, "current-value")
        element.tag = tags.get(name, "span")
    return html_text(part)


_MAIN = "word/document.xml"
_FORMS = {"sup": "^({})", "sub": "_({})", "num": "({})", "d": "({})", "den": "/({})", "rad": "√({})"}
"""Elements of equations as text."""
_AROUND = [
    f"{{*}}{name}" for name in ("moveTo", "fldSimple", "customXml", "bdo", "dir", "ruby", "rubyBase", "oMathPara")
]
"""Elements around text that the library leaves out with all that is in them."""


def read_docx(source: Path, out: Output) -> str:
    """Read the text, with equations and boxes, then its pictures and the rest; returns the description."""
    import mammoth

    with checked_zip(source, office=True) as archive:
        file = _with_equations(archive, out) if _MAIN in archive.NameToInfo else io.BytesIO(source.read_bytes())
        alone = mammoth.images.img_element(lambda _: {})  # the description; the picture is read as a file
        try:
            html = mammoth.convert_to_html(file, convert_image=alone, external_file_access=False).value
            text = html_text(parsed_html(html))
        except (LookupError, ValueError, TypeError, AttributeError):
            # One element that refers to a missing part, or has an odd value, stops the library; Word opens such files.
            text = _as_page(xml_part(archive, _MAIN), _SLIDE)
            out.leave_out("layout of an unusual document (its words were read)")
        out.add(text)
        add_parts(archive, out, _unplaced_notes(archive, text))
    return f"Word document: {out.first_line()}"


def _unplaced_notes(archive: zipfile.ZipFile, text: str) -> Iterator[str]:
    """The notes that the text lacks, since no place in it refers to them."""
    there = " ".join(text.split())
    names = filter(re.compile(r"word/(?:foot|end)notes\d*\.xml").fullmatch, archive.NameToInfo)
    notes = ((_name(note), " ".join(_words(note).split())) for name in names for note in xml_part(archive, name))
    return (f"[{kind}: {words}]" for kind, words in notes if words not in there)


def _with_equations(archive: zipfile.ZipFile, out: Output) -> io.BytesIO:
    """The document with equations as text; counts the passages that a tracked change deletes."""
    from lxml import etree

    root = xml_part(archive, _MAIN)
    if _NUMBERING in archive.NameToInfo:
        _write_marks(root, archive)
    deleted = sum(any(True for _ in each.iter("{*}delText")) for each in root.iter("{*}del"))
    out.leave_out("deleted passage (tracked change)", deleted)
    space = str(root.tag).rpartition("}")[0] + "}"
    for around in root.iter(*_AROUND):
        around.tag = space + "ins"
    for art in root.iter("{*}textpath"):
        art.tag, art.text = space + "t", art.get("string")
    for box in list(root.iterfind(".//{*}drawing//{*}txbxContent")):
        # The library reads boxes that stand there a second time for old programs.
        old = next(box.iterancestors("{*}AlternateContent"), box).find("{*}Fallback") is not None
        for paragraph in [] if old else reversed(box):
            next(box.iterancestors(space + "p")).addnext(paragraph)
    for equation in root.iter("{*}oMath"):
        text, equation[:], equation.tag = _equation(equation), [], space + "r"
        etree.SubElement(equation, space + "t").text = text
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as copy:
        for name in archive.NameToInfo.keys() - {_NUMBERING}:
            copy.writestr(name, etree.tostring(root) if name == _MAIN else archive.read(name))
    return file


def _equation(element: "_Element") -> str:
    name = _name(element)
    text = "".join(map(_equation, element)) or {"t": element.text, "chr": _attribute(element, "val")}.get(name) or ""
    text = text or "∫" * (name == "naryPr")
    return _FORMS[name].format(text) if name in _FORMS and len(text) else text


_NUMBERING, _STYLES = "word/numbering.xml", "word/styles.xml"
_NUMERALS = {"lowerLetter": "a", "upperLetter": "A", "lowerRoman": "i", "upperRoman": "I"}


def _write_marks(root: "_Element", archive: zipfile.ZipFile) -> None:
    """Write the marks of lists and numbered headings, which the file only implies, as words (ECMA-376-1, 17.9)."""
    lists = xml_part(archive, _NUMBERING)
    kinds = {_attribute(kind, "abstractNumId"): kind for kind in lists.iterfind("{*}abstractNum")}
    used = {_attribute(each, "numId"): each for each in lists.iterfind("{*}num")}
    styles = xml_part(archive, _STYLES).iterfind("{*}style") if _STYLES in archive.NameToInfo else ()
    styled = {_attribute(style, "styleId"): style.findall("{*}pPr/{*}numPr") for style in styles}
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for paragraph in root.iter("{*}p"):
        places = paragraph.findall("{*}pPr/{*}numPr") or styled.get(_value(paragraph, "{*}pPr/{*}pStyle"), ())
        for place, first in zip(places, paragraph.iter("{*}t"), strict=False):
            with suppress(LookupError, ValueError):  # a list that the file doesn't describe
                id = _value(place, "{*}numId")
                kind = _value(used[id], "{*}abstractNumId")
                anew = used[id].find("{*}lvlOverride/{*}startOverride") is not None
                mark = _mark(kinds[kind], int(_value(place, "{*}ilvl") or 0), counts[f"num {id}" if anew else kind])
                first.text = f"{mark} {first.text or ''}"


def _mark(kind: "_Element", level: int, counts: list[int]) -> str:
    """The mark of the next item of this level: a dash, or the number of the item within those above it."""
    levels = kind.findall("{*}lvl")
    starts = [int(_value(each, "{*}start") or 1) for each in levels]
    counts += starts[len(counts) : level]
    counts[level:] = [counts[level] + 1 if counts[level:] else starts[level]]
    mark = "-" if _value(levels[level], "{*}numFmt") == "bullet" else _value(levels[level], "{*}lvlText")
    forms = (_NUMERALS.get(_value(each, "{*}numFmt"), "1") for each in levels)
    for place, number in enumerate(map(numeral, counts, forms), 1):
        mark = mark.replace(f"%{place}", number)
    return mark


def _value(element: "_Element", path: str) -> str:
    found = element.find(path)
    return "" if found is None else _attribute(found, "val")


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
    parts = (part.iter("{*}t", "{*}textpath") for part in root.iter("{*}p"))
    paragraphs = ("".join(each.text or each.get("string", "") for each in part) for part in parts)
    return "\n".join(filter(str.strip, paragraphs))


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
    text = " ".join((_words(comment) or "".join(comment.itertext())).split())
    return f"[comment{f' by {author}' if author else ''}{f' on {place}' if place else ''}: {text}]"


def _chart(root: "_Element") -> str:
    titles = ", ".join(filter(None, (" ".join(_words(each).split()) for each in root.iter("{*}title"))))
    return "\n".join([f"[chart: {titles or 'without a title'}]", *map(_series, root.iter("{*}ser"))])


def _series(series: "_Element") -> str:
    name, labels, values = (_values(series, tags) for tags in (("tx",), ("cat", "xVal"), ("val", "yVal")))
    return f"{name or 'series'}: {values}" + (f" (for {labels})" if labels else "")


def _values(series: "_Element", tags: tuple[str, ...]) -> str:
    found = (each.text or "" for part in series if _name(part) in tags for each in part.iter("{*}v"))
    return ", ".join(islice(found, _MAX_VALUES))


_Words: TypeAlias = Callable[["_Element"], str]

PARTS: tuple[tuple[str, "Use | _Words | str"], ...] = (
    (r"(?:ppt/slides|xl/worksheets)/_rels/.*\.rels", _links),
    (r"\[Content_Types\]\.xml|.*\.rels|(?:docProps|customXml|_xmlsignatures)/.*|.*/", Use.FORM),
    (r"\w+/(?:document|footnotes|endnotes|presentation|workbook|sharedStrings)\d*\.(?:xml|bin)", Use.MAIN),
    (r"ppt/(?:slides|notesSlides)/[^/]*\.xml|xl/worksheets/[^/]*\.(?:xml|bin)", Use.MAIN),
    (r"word/(?:header|footer)\d*\.xml", _header),
    (r"\w+/comments\d*\.xml|\w+/(?:comments|threadedComments)/.*\.xml", _comments),
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


def add_parts(archive: zipfile.ZipFile, out: Output, found: Iterable[str] = ()) -> None:
    """Add what was `found`, headers, comments, charts and words in drawings as a page, pictures and files as more."""
    texts, files = list(found), []
    for name in archive.NameToInfo:  # each once: a name that is listed often would be unpacked as often
        use = use_of(name)
        if use is Use.FILE:
            files.append(name)
        elif isinstance(use, str):
            out.leave_out(use)
        elif not isinstance(use, Use):
            texts.append(use(xml_part(archive, name)))
    if text := "\n".join(filter(None, dict.fromkeys(texts))):
        out.add(text)
    for name in files:
        out.add_file(name.rpartition("/")[2], archive.read(name))
