"""A page of the web: what a reader would read of it, with its links; other files as `reading` reads them."""

import re
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from urllib.parse import urljoin

from gateway.domain.json import Json, JsonObject
from gateway.ingest import extraction
from gateway.ingest.output import Derived, clean
from gateway.ingest.sniff import sniff
from gateway.ingest.text import decode, html_text, parsed_html

SECONDS = 60.0
"""For one page or file, as a run waits for it."""
MAX_TEXT = 1_000_000
MAX_LINKS = 500
_CHARSET = re.compile(rb"""charset\s*=\s*["']?([\w-]+)""", re.IGNORECASE)
_LINK = re.compile(r"""https?://[^\s"'<>()\[\]{}\\^`|]+""")
_HARDLY_ANY = 200
"""Characters; of a page that is one list or one form the extraction leaves less."""


def read(source: str, target: str, url: str, mime: str, charset: str, name: str) -> Json:
    """Its text goes to `text.txt` in the empty folder `target`; the answer has title, links, problem.

    The job of the CPU process, in a jail as any file. Raises `Ended`.
    """
    if sys.platform == "linux" and (not mime or "html" in mime):
        import_module("trafilatura")  # the child, and those after it, start with it
    extraction.prepare(name)
    return extraction.in_jail(partial(_read, source, target, url, mime, charset, name), source, target, SECONDS)


def _read(source: str, target: str, url: str, mime: str, charset: str, name: str) -> JsonObject:
    kind = sniff(Path(source), name, mime).kind
    if kind == "page":
        html = decoded(Path(source).read_bytes(), charset)
        title, text, links = _page(html, url)
        problem = "" if text else "no text was found in it; it may need a browser"
    else:
        derived = Derived.from_json(extraction.read_file(source, target, name, mime))
        text = (Path(target) / derived.text).read_text("utf-8") if derived.text else ""
        title, links, problem = derived.description, links_in(text), derived.problem
    (Path(target) / "text.txt").write_text(text[:MAX_TEXT], "utf-8", "replace")
    return {"title": title[:300], "links": links[:MAX_LINKS], "problem": problem}


def links_in(text: str) -> list[str]:
    """The web addresses that are written out in a text."""
    return list(dict.fromkeys(link.rstrip(".,;:!?") for link in _LINK.findall(text[:MAX_TEXT])))


def decoded(raw: bytes, charset: str) -> str:
    """By what the answer's head says, then by what the page says, then by its bytes."""
    inside = _CHARSET.search(raw[:2048])
    for claimed in filter(None, (charset, inside[1].decode("ascii", "replace") if inside else "")):
        with suppress(LookupError, UnicodeError):
            return raw.decode(claimed, "replace")
    return decode(raw) or raw.decode("utf-8", "replace")


def _page(html: str, url: str) -> tuple[str, str, list[str]]:
    from trafilatura import extract

    root = parsed_html(html)
    title = " ".join((root.findtext(".//title") or "").split())
    text = extract(html, url=url, output_format="markdown", include_links=True, include_comments=False) or ""
    if len(text) < _HARDLY_ANY:
        text = max(text, html_text(root), key=len)
    links = dict.fromkeys(_joined(url, anchor.get("href", "")) for anchor in root.iter("a"))
    return title, clean(text), [link for link in links if link]


def _joined(base: str, href: str) -> str:
    try:
        return urljoin(base, href).partition("#")[0]
    except ValueError:
        return ""
