"""Parts of Word, PowerPoint and Excel files (ECMA-376-1) beside the main text: each is read, or counted as left out."""

import re
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias
from zipfile import ZipFile

from gateway.ingest.archive import xml_part
from gateway.ingest.output import Output

if TYPE_CHECKING:
    from lxml.etree import _Element

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


def add_parts(archive: ZipFile, out: Output) -> None:
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
