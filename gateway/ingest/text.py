"""Text in any encoding, and HTML and e-books as readable text: headings, lists and tables keep their form."""

import codecs
import posixpath
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from gateway.ingest import archive
from gateway.ingest.output import MAX_ENTRIES, MAX_SOURCE_BYTES, Output

if TYPE_CHECKING:
    from lxml.etree import _Element


_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_TEXT_BYTES = frozenset(range(32, 256)) - {127} | set(b"\t\n\r\f\b\x1b")


def read_text(source: Path, out: Output) -> str:
    """The description."""
    text = decode(start_of(source, out)) or ""
    lines = len(text.splitlines())
    out.add(text)
    return f"{lines:,} line{'s' * (lines != 1)}: {out.first_line()}"


def start_of(source: Path, out: Output) -> bytes:
    """No more than `SOURCE`; that there is more is said."""
    with source.open("rb") as file:
        raw = file.read(MAX_SOURCE_BYTES)
        if file.read(1):
            out.problem = f"only the first {MAX_SOURCE_BYTES >> 20} MB were read"
    return raw


def decode(raw: bytes) -> str | None:
    """None for what is no text; a character cut off at the end is left out."""
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            return codecs.getincrementaldecoder(encoding)("replace").decode(raw[len(mark) :])
    if not _TEXT_BYTES.issuperset(raw[:100_000]):
        return None
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


_SILENT = re.compile("script|style|noscript|template|svg|head|iframe|object|canvas|select|button")
_LINES = re.compile(
    "address|article|aside|blockquote|body|d[dlt]|div|fieldset|figcaption|figure|footer|form|header|hr|main|nav|section|tr"
)
_PARAGRAPHS = re.compile("p|pre|ul|ol|table")
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_SPACE = re.compile(r"\s+")
_CHARSET = re.compile(rb"""charset\s*=\s*["']?([\w-]+)""", re.IGNORECASE)

# Signs for breaks while a text is put together. What is preformatted keeps its own, under other signs.
_LINE, _PARAGRAPH, _BULLET = "\r", "\f", "\v"
_KEPT = str.maketrans({"\n": "\x1e", " ": "\x1f", "\r": ""})
_GIVEN_BACK = str.maketrans({"\x1e": "\n", "\x1f": " "})
_AFTER_BULLET = re.compile(r"\v[ \n\r\f]*")
_BREAKS = re.compile(r"[ \n\r\f]*[\n\r\f][ \n\r\f]*")


def read_page(source: Path, out: Output) -> str:
    """The description of a web page that was saved."""
    root = parsed_html(_decoded(start_of(source, out)))
    title = _SPACE.sub(" ", root.findtext(".//title") or "").strip()
    out.add(html_text(root))
    return f"web page: {title or out.first_line()}"


def read_epub(source: Path, out: Output) -> str:
    """The description, with title and author; a chapter is a page, in the order of the spine."""
    with archive.checked(source) as book:
        package = next(archive.xml(book, "META-INF/container.xml").iter("{*}rootfile")).get("full-path", "")
        root = archive.xml(book, package)
        files = {item.get("id"): item.get("href", "") for item in root.iter("{*}item")}
        for reference in list(root.iter("{*}itemref"))[:MAX_ENTRIES]:
            href = unquote(files.get(reference.get("idref"), "")).partition("#")[0]
            chapter = posixpath.normpath(posixpath.join(posixpath.dirname(package), href))
            if chapter in book.NameToInfo and (text := html_text(parsed_html(_decoded(book.read(chapter))))):
                out.add(text)
    words = [root.findtext(f".//{{*}}{tag}") or "" for tag in ("title", "creator")]
    return f"book, {out.pages} chapters: {', '.join(filter(None, words)) or out.first_line()}"


def _decoded(raw: bytes) -> str:
    """By what the page says of itself, else by its bytes."""
    if said := _CHARSET.search(raw[:2048]):
        with suppress(LookupError):
            return raw.decode(said[1].decode(), "replace")
    return decode(raw) or raw.decode("utf-8", "replace")


def parsed_html(html: str) -> "_Element":
    """The parser sees to it that it is at most 256 levels deep; a page without anything is an empty element."""
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True)
    root = etree.fromstring(html.encode("utf-8", "replace"), parser) if html.strip() else None
    return etree.Element("html") if root is None else root


def html_text(root: "_Element") -> str:
    """Its text, whatever `parsed` it or named its elements as HTML does."""
    parts: list[str] = []
    _walk(root, parts, in_line=False, preformatted=False)
    text = re.sub(" {2,}", " ", "".join(parts))
    text = _BREAKS.sub(_break, _AFTER_BULLET.sub("\r- ", text))
    return text.translate(_GIVEN_BACK).strip()


def _walk(element: "_Element", parts: list[str], *, in_line: bool, preformatted: bool) -> None:
    """In cells and headings, `in_line`, a break is a space; a row within a cell starts anew."""
    tag = str(element.tag)
    if _SILENT.fullmatch(tag):
        return
    in_line = in_line and tag != "tr"
    before, after = (" ", " ") if in_line and any(_signs(tag)) else _signs(tag)
    parts.append(before)
    if tag in {"td", "th"} and element.getprevious() is not None:
        parts.append(" | ")
    in_line = in_line or tag in {"td", "th"} or tag in _HEADINGS
    preformatted = preformatted or tag == "pre"
    parts.append(_said(element.text, preformatted))
    for child in element:
        _walk(child, parts, in_line=in_line, preformatted=preformatted)
        parts.append(_said(child.tail, preformatted))
    parts.append(after)


def _signs(tag: str) -> tuple[str, str]:
    """Before and after an element."""
    if tag in _HEADINGS:
        return _PARAGRAPH + _HEADINGS[tag], _PARAGRAPH
    if _PARAGRAPHS.fullmatch(tag):
        return _LINE, _PARAGRAPH
    if _LINES.fullmatch(tag):
        return _LINE, _LINE
    return {"li": (_BULLET, _LINE), "br": ("\n", "")}.get(tag, ("", ""))


def _said(text: str | None, preformatted: bool) -> str:
    return (text or "").translate(_KEPT) if preformatted else _SPACE.sub(" ", text or "")


def _break(run: re.Match[str]) -> str:
    """An empty line at most."""
    return "\n\n" if _PARAGRAPH in run[0] else "\n" * min(2, max(1, run[0].count("\n")))
