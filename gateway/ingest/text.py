"""Text in any encoding, and HTML and e-books as readable text: headings, lists and tables keep their form."""

import json
import posixpath
import quopri
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from gateway.ingest.archive import checked_zip, xml_part
from gateway.ingest.encoding import Decoded, decode, decoded_as, detected
from gateway.ingest.output import MAX_ENTRIES, MAX_SOURCE_BYTES, Output

if TYPE_CHECKING:
    from lxml.etree import _Element


_BASE64 = re.compile(
    r"data:[\w/+.-]+;base64,[A-Za-z0-9+/=]{200,}|[A-Za-z0-9+/]{1000,}={0,2}"
    r"|(?:[ \t]?[A-Za-z0-9+/]{60,76}\r?\n){16,}[ \t]?[A-Za-z0-9+/]*={0,2}"
)


_ENCODED = re.compile(r"(?im)^([a-z][\w.;=-]*;(?:encoding=)?quoted-printable[\w;=-]*):((?:.*=\r?\n)*.*)")


def read_text(source: Path, out: Output) -> str:
    """Read the text; returns the description."""
    raw = start_of(source, out)
    found = detected(raw) or Decoded("")
    if found.guess and raw.startswith(b"<?xml"):
        found = Decoded(decode_html(raw))
    text = without_base64(_ENCODED.sub(_value, found.text), out)
    lines = len(text.splitlines())
    out.add(text)
    doubt = f" (the encoding is a guess: {found.guess})" if found.guess else ""
    return f"{lines:,} line{'s' * (lines != 1)}{doubt}: {out.first_line()}"


def _value(found: re.Match[str]) -> str:
    """The value of an old address card or appointment (vCard 2.1, 2.1.3), as text."""
    charset = re.search(r"charset=([\w-]+)", found[1], re.IGNORECASE)
    return f"{found[1]}:{decode_html(quopri.decodestring(found[2].encode()), charset[1] if charset else '')}"


def without_base64(text: str, out: Output) -> str:
    """The text without encoded files, which are counted as left out."""

    def marked(found: re.Match[str]) -> str:
        body = found[0].rpartition(",")[2]
        # A sequence of nucleotides or digits isn't one.
        if len(set(body[:2000])) < 24:
            return found[0]
        out.leave_out("encoded file (base64)")
        return "[base64]"

    return _BASE64.sub(marked, text)


def start_of(source: Path, out: Output) -> bytes:
    """The first 20 MB; sets the output's `problem` if there is more."""
    with source.open("rb") as file:
        raw = file.read(MAX_SOURCE_BYTES)
        if file.read(1):
            out.problem = f"only the first {MAX_SOURCE_BYTES >> 20} MB were read"
    return raw


_SKIPPED_TAGS = re.compile("script|style|template|head")
_LINES = re.compile(
    "address|article|aside|blockquote|body|button|d[dlt]|details|div|fieldset|figcaption|figure|footer|form|header|hr|main"
    "|nav|option|section|select|summary|text|tr"
)
_PARAGRAPHS = re.compile("p|pre|ul|ol|table")
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_SPACE = re.compile(r"\s+")
_ADDRESS, _SCHEME = re.compile(r"(?:https?://|mailto:|tel:)\S{3,500}"), re.compile("mailto:|tel:")
"""An address that is shown behind its words; longer ones only track who opens them."""
_CHARSET = re.compile(rb"""(?:charset|<\?xml[^>]*encoding)\s*=\s*["']?([\w-]+)""", re.IGNORECASE)

# Characters that stand for breaks while a text is assembled; others protect the breaks of preformatted text.
_LINE, _PARAGRAPH, _AROUND_MARK = "\r", "\f", "\v"
_PROTECT = str.maketrans({"\n": "\x1e", " ": "\x1f", "\r": ""})
_RESTORE = str.maketrans({"\x1e": "\n", "\x1f": " "})
_MARK = re.compile(r"\v([^\v]+)\v[ \n\r\f]*")
"""The mark of an item of a list: a dash or its number."""
_WHOLE = re.compile("[0-9]{1,6}")
_BREAKS = re.compile(r"[ \n\r\f]*[\n\r\f][ \n\r\f]*")


def read_page(source: Path, out: Output) -> str:
    """Read a saved web page; returns the description."""
    root = parsed_html(decode_html(start_of(source, out)))
    title = _SPACE.sub(" ", root.findtext(".//title") or "").strip()
    out.add(page_text(root, out))
    return f"web page: {title or out.first_line()}"


def page_text(root: "_Element", out: Output) -> str:
    """The text of a page; files that stand in it are counted as left out."""
    for each in root.xpath("//*[starts-with(@src, 'data:')]"):
        out.leave_out("picture" if each.tag == "img" else f"file inside of the page ({each.tag})")
    return html_text(root)


def read_svg(source: Path, out: Output) -> str:
    """Read the words of a drawing; returns the description."""
    out.add(html_text(parsed_html(decode_html(start_of(source, out)))))
    out.leave_out("drawing (SVG; only its words were read)")
    return f"SVG drawing: {out.first_line()}"


def read_notebook(source: Path, out: Output) -> str:
    """Read the cells of a Jupyter notebook with the text of their outputs (nbformat 4); returns the description."""
    cells = json.loads(decode(start_of(source, out)) or "")["cells"]
    for cell in cells:
        kind, text = cell.get("cell_type"), without_base64("".join(cell.get("source") or ()), out)
        out.leave_out("picture", len(cell.get("attachments") or ()))
        out.add("\n".join([f"```\n{text}\n```" if kind == "code" else text, *_outputs(cell.get("outputs") or (), out)]))
    return f"notebook, {len(cells)} cells: {out.first_line()}"


def _outputs(outputs: Iterable[Mapping[str, Any]], out: Output) -> Iterator[str]:
    for each in outputs:
        data = each.get("data", {})
        texts = ["".join(data.get(f"text/{kind}", ())) for kind in ("plain", "markdown", "html", "latex")]
        texts += ["".join(each.get("text", ())), "\n".join(each.get("traceback", ())), each.get("evalue", "")]
        # The plain form of what only a browser shows is the name of its class.
        yield without_base64(next((text for text in texts if text and not text.startswith("<IPython")), ""), out)
        for kind in data:
            if not kind.startswith("text/"):
                out.leave_out("picture" if kind.startswith("image/") else f"output ({kind})")


_LOCKED = "META-INF/encryption.xml"


def read_epub(source: Path, out: Output) -> str:
    """Read each chapter as a page, in the order of the spine; returns the description."""
    with checked_zip(source, office=False) as book:
        locked = xml_part(book, _LOCKED).iter("{*}CipherReference") if _LOCKED in book.NameToInfo else ()
        sealed = {unquote(each.get("URI", "")) for each in locked}
        package = next(xml_part(book, "META-INF/container.xml").iter("{*}rootfile")).get("full-path", "")
        root = xml_part(book, package)
        files = {item.get("id"): item.get("href", "") for item in root.iter("{*}item")}
        order = root.xpath("//*[local-name()='itemref']/@idref")
        # Notes and the like may have no place in the order; a reader opens them by links.
        order += root.xpath("//*[@media-type='application/xhtml+xml'][not(@properties='nav')]/@id")
        for id in [*dict.fromkeys(order)][:MAX_ENTRIES]:
            href = unquote(files.get(id, "")).partition("#")[0]
            chapter = posixpath.normpath(posixpath.join(posixpath.dirname(package), href))
            if chapter in sealed or chapter not in book.NameToInfo:
                out.leave_out("missing or encrypted chapter")
            elif text := html_text(parsed_html(decode_html(book.read(chapter)))):
                out.add(text)
        out.leave_out("picture", sum(item.get("media-type", "").startswith("image/") for item in root.iter("{*}item")))
    words = [root.findtext(f".//{{*}}{tag}") or "" for tag in ("title", "creator")]
    return f"book, {out.pages} chapters: {', '.join(filter(None, words)) or out.first_line()}"


def decode_html(raw: bytes, charset: str = "") -> str:
    """Decode by `charset`, then by the page's own statement, then by the bytes; a useless charset is skipped."""
    inside = _CHARSET.search(raw[:2048])
    for claimed in filter(None, (charset, inside[1].decode("ascii", "replace") if inside else "")):
        with suppress(LookupError, UnicodeError):
            return decoded_as(raw, claimed, "replace")
    return decode(raw) or raw.decode("utf-8", "replace")


def parsed_html(html: str) -> "_Element":
    """Parse HTML; the parser limits it to 256 levels. An empty page is an empty element."""
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True)
    root = etree.fromstring(html.encode("utf-8", "replace"), parser) if html.strip() else None
    return etree.Element("html") if root is None else root


def html_text(root: "_Element") -> str:
    """The text of parsed HTML, or of any tree with HTML's element names."""
    parts: list[str] = []
    _walk(root, parts, in_line=False, preformatted=False)
    text = re.sub(" {2,}", " ", "".join(parts))
    text = _BREAKS.sub(_break, _MARK.sub(r"\r\1 ", text))
    return text.translate(_RESTORE).strip()


def _walk(element: "_Element", parts: list[str], *, in_line: bool, preformatted: bool) -> None:
    """Collect the text. In cells and headings, `in_line`, a break is a space, but rows in a cell have lines again."""
    tag = str(element.tag)
    if _SKIPPED_TAGS.fullmatch(tag):
        return
    in_line = in_line and tag != "tr"
    before, after = (" ", " ") if in_line and any(_breaks_around(tag)) else _breaks_around(tag)
    parts.append(before)
    if tag in {"td", "th"} and element.getprevious() is not None:
        parts.append(" | ")
    in_line = in_line or tag in {"td", "th"} or tag in _HEADINGS
    preformatted = preformatted or tag == "pre"
    if tag == "ol":
        _number(element)
    if tag == "li":
        mark = element.get("number", "-")
        parts.append(f"{mark} " if in_line else f"{_AROUND_MARK}{mark}{_AROUND_MARK}")
    if page := element.get("srcdoc"):
        element.append(parsed_html(page))
    if tag == "input" and element.get("type") in {"checkbox", "radio"}:
        parts.append("[ ] " if element.get("checked") is None else "[x] ")
    elif tag == "input" and element.get("type") not in {"hidden", "password"}:
        parts.append(f" {element.get('value', '')} ")
    if tag == "img" and (description := (element.get("alt") or element.get("title") or "").strip()):
        parts.append(f" [picture: {_SPACE.sub(' ', description)}] ")
    begin = len(parts)
    parts.append(_text(element.text, preformatted))
    for child in element:
        _walk(child, parts, in_line=in_line, preformatted=preformatted)
        parts.append(_text(child.tail, preformatted))
    if tag == "a" and _ADDRESS.fullmatch(address := element.get("href", "").strip()):
        parts.append(f" ({address})" if _SCHEME.sub("", address) not in "".join(parts[begin:]) else "")
    parts.append(after)


def _breaks_around(tag: str) -> tuple[str, str]:
    """The breaks before and after an element."""
    if tag in _HEADINGS:
        return _PARAGRAPH + _HEADINGS[tag], _PARAGRAPH
    if _PARAGRAPHS.fullmatch(tag):
        return _LINE, _PARAGRAPH
    return (_LINE, _LINE) if _LINES.fullmatch(tag) else {"li": ("", _LINE), "br": ("\n", "")}.get(tag, ("", ""))


def _number(ordered: "_Element") -> None:
    """Number the items of a list; one with a number of its own sets the count."""
    number, *_ = _WHOLE.findall(ordered.get("start", "")) or ["1"]
    for item in ordered.iterchildren("li"):
        number, *_ = _WHOLE.findall(item.get("value", "")) or [number]
        item.set("number", f"{numeral(int(number), ordered.get('type', '1'))}.")
        number = str(int(number) + 1)


_ROMAN, _MOST_IN_LETTERS = {"x": 10, "ix": 9, "v": 5, "iv": 4, "i": 1}, 39


def numeral(number: int, form: str) -> str:
    """The number of an item in a form of HTML: 1, a, A, i or I."""
    text, rest = "", number if number <= _MOST_IN_LETTERS else 0
    if form in {"a", "A"}:
        text = chr(ord("a") + (rest - 1) % 26) * ((rest + 25) // 26)
    elif form in {"i", "I"}:
        for letters, value in _ROMAN.items():
            text, rest = text + letters * (rest // value), rest % value
    return (text.upper() if form.isupper() else text) or str(number)


def _text(text: str | None, preformatted: bool) -> str:
    return (text or "").translate(_PROTECT) if preformatted else _SPACE.sub(" ", text or "")


def _break(run: re.Match[str]) -> str:
    """A run of breaks as at most one empty line."""
    return "\n\n" if _PARAGRAPH in run[0] else "\n" * min(2, max(1, run[0].count("\n")))
