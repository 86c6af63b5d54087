"""A web page: its readable text and its links; other files are read as `extraction` does."""

import re
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from urllib.parse import urljoin

from gateway.domain.json import Json, JsonObject
from gateway.ingest import reading
from gateway.ingest.output import ExtractedFile, clean
from gateway.ingest.sniff import sniff
from gateway.ingest.text import decode_html, html_text, parsed_html

SECONDS = 60.0
"""For one page or file, since a run waits for it."""
MAX_TEXT = 1_000_000
MAX_LINKS = 500
_LINK = re.compile(r"""https?://[^\s"'<>()\[\]{}\\^`|]+""")
_MIN_PAGE_CHARACTERS = 200
"""The extraction leaves less of a page that is one list or one form."""


def read(source: str, target: str, url: str, mime: str, charset: str, name: str) -> Json:
    """Write the text to `text.txt` in the empty folder `target`; returns title, links and problem.

    For the CPU process; runs in a jail. Raises `ChildFailed`.
    """
    if sys.platform == "linux" and (not mime or "html" in mime):
        import_module("trafilatura")  # so that this child and later ones start with it
    reading.prepare(name)
    return reading.in_jail(partial(_read, source, target, url, mime, charset, name), source, target, SECONDS)


def _read(source: str, target: str, url: str, mime: str, charset: str, name: str) -> JsonObject:
    kind = sniff(Path(source), name, mime).kind
    if kind == "page":
        html = decode_html(Path(source).read_bytes(), charset)
        title, text, links = _page(html, url)
        problem = "" if text else "no text was found in it; it may need a browser"
    else:
        file = ExtractedFile.from_json(reading.read_file(source, target, name, mime))
        text = (Path(target) / file.text).read_text("utf-8") if file.text else ""
        title, links, problem = file.description, links_in(text), file.problem
    (Path(target) / "text.txt").write_text(text[:MAX_TEXT], "utf-8", "replace")
    return {"title": title[:300], "links": links[:MAX_LINKS], "problem": problem}


def links_in(text: str) -> list[str]:
    """The web addresses in a text."""
    return list(dict.fromkeys(link.rstrip(".,;:!?") for link in _LINK.findall(text[:MAX_TEXT])))


def _page(html: str, url: str) -> tuple[str, str, list[str]]:
    from trafilatura import extract

    root = parsed_html(html)
    title = " ".join((root.findtext(".//title") or "").split())
    text = extract(html, url=url, output_format="markdown", include_links=True, include_comments=False) or ""
    if len(text) < _MIN_PAGE_CHARACTERS:
        text = max(text, html_text(root), key=len)
    links = dict.fromkeys(_joined(url, anchor.get("href", "")) for anchor in root.iter("a"))
    return title, clean(text), [link for link in links if link]


def _joined(base: str, href: str) -> str:
    with suppress(ValueError):
        return urljoin(base, href).partition("#")[0]
    return ""
