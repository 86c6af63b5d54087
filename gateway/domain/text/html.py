"""HTML that models write in Markdown: the usual elements become Markdown's own pieces, others stay text.

An element counts only with its end, so that a tag somebody writes about stays. Code keeps its tags.
"""

import re
from functools import partial
from html import unescape

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline

MAX_ELEMENT = 2_000
"""Characters of an element within a line, which bounds the search for its end."""
_CODE = (
    r"(?P<code>(?m:^[ ]{0,3}(?P<fence>`{3,}|~{3,})[^\n]*\n(?s:.*?)(?:^[ ]{0,3}(?P=fence)|\Z))|"
    r"(?<!`)(?P<ticks>`+)(?!`)[^`]{1,4000}(?P=ticks)(?!`)|(?m:^(?: {4}|\t).*$))"
)
_BLOCKS = re.compile(
    _CODE
    + r"|<(?P<end>/?)(?P<tag>details|summary|p|div|section|article|center|ul|ol|li|h[1-6]|blockquote|table|thead|tbody"
    r"|tr)(?:\s[^<>]{0,500})?>|(?P<cell><t[dh](?:\s[^<>]{0,500})?>)|</t[dh]>|(?P<rule><hr\s*/?>)|<!--(?s:.{0,4000}?)-->",
    re.IGNORECASE,
)
_ELEMENT = re.compile(r"<(?P<tag>[a-z]+)(?P<attributes>(?:\s[^<>]{0,1000})?)>", re.IGNORECASE)
_MARKS = {"b": "strong", "strong": "strong", "i": "em", "em": "em", "s": "s", "del": "s", "strike": "s"}
_PLAIN = {
    "u", "ins", "sub", "sup", "kbd", "mark", "small", "span", "font", "q", "cite", "abbr", "var", "big", "summary",
}  # fmt: skip
_CODES = {"code", "tt", "samp"}
_ALONE = re.compile(r"<(?:(?P<break>br)|wbr)\s*/?>|<!--.{0,2000}?-->", re.IGNORECASE | re.DOTALL)
_ADDRESS = re.compile(r"\shref\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|(\S+))", re.IGNORECASE)
_SPOILER = re.compile(r"(?<![\w|])\|\|(?=[^\s|])(.{1,2000}?)(?<=[^\s|])\|\|(?![\w|])")


FOLD, UNFOLD = "\ue010", "\ue011"
"""Paragraphs around what `<details>` folds, for a reader that can unfold it."""


def add_rules(markdown: MarkdownIt, *, folds: bool = False) -> None:
    """Read HTML, and `||spoilers||`; `folds`: mark what is folded, instead of showing all of it."""
    markdown.core.ruler.after("normalize", "html_blocks", partial(_blocks, folds=folds))
    markdown.inline.ruler.before("autolink", "html", _inline)
    markdown.inline.add_terminator_char("|")


def _blocks(state: StateCore, *, folds: bool) -> None:
    """Elements on lines of their own as Markdown's blocks."""
    if "<" in state.src:
        lower = state.src.lower()
        state.src = _BLOCKS.sub(_Blocks({tag for tag in _BLOCK_TAGS if f"</{tag}>" in lower}, folds), state.src)


_BLOCK_TAGS = (
    *("details", "summary", "p", "div", "section", "article", "center", "ul", "ol", "li", "blockquote", "table"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "thead", "tbody", "tr", "td"),
)


class _Blocks:
    """Replaces tags one after another, with what it has to remember of lists and tables."""

    def __init__(self, closed: set[str], folds: bool) -> None:
        self._closed = closed
        self._folds = folds
        self._bullet = "- "
        self._cells = 0
        self._head = False

    def __call__(self, found: re.Match[str]) -> str:
        if found["code"]:
            return found.group()
        if found["rule"]:
            return "\n\n---\n\n"
        if found["cell"] or (found.group().lower().startswith("</t") and not found["tag"]):
            self._cells += bool(found["cell"])
            return " | " if found["cell"] and "td" in self._closed else "" if "td" in self._closed else found.group()
        if not found["tag"]:
            return ""
        tag, end = found["tag"].lower(), bool(found["end"])
        return found.group() if tag not in self._closed else self._block(tag, end)

    def _block(self, tag: str, end: bool) -> str:
        match tag:
            case "details" if self._folds:
                return f"\n\n{UNFOLD if end else FOLD}\n\n"
            case "summary":
                return "**\n\n" if end else "\n\n**"
            case "li":
                return "" if end else f"\n{self._bullet}"
            case "ul" | "ol":
                self._bullet = "1. " if tag == "ol" and not end else "- "
                return "\n\n"
            case "table":
                self._head = not end
                return "\n\n"
            case "thead" | "tbody":
                return ""
            case "tr" if not end:
                self._cells = 0
                return "\n"
            case "tr":
                head, self._head = self._head, False
                return f" |\n{'| --- ' * self._cells}|" if head else " |"
            case _ if tag[0] == "h" and not end:
                return f"\n\n{'#' * int(tag[1])} "
            case _:
                return "\n\n"


def _inline(state: StateInline, silent: bool) -> bool:
    """A rule of the parser: an element within a line, a line break, a comment or a spoiler."""
    char = state.src[state.pos]
    return (char == "<" and _element(state, silent)) or (char == "|" and _spoiler(state, silent))


def _element(state: StateInline, silent: bool) -> bool:
    if alone := _ALONE.match(state.src, state.pos):
        if alone["break"] and not silent:
            state.push("hardbreak", "br", 0)
        state.pos = alone.end()
        return True
    found = _ELEMENT.match(state.src, state.pos)
    tag = found["tag"].lower() if found else ""
    if found is None or tag not in {*_MARKS, *_PLAIN, *_CODES, "a"}:
        return False
    stop = state.src[found.end() : min(found.end() + MAX_ELEMENT, state.posMax)].lower().find(f"</{tag}>")
    if stop < 0:
        return False
    stop += found.end()
    if not silent:
        _push(state, tag, found, stop)
    state.pos = stop + len(tag) + 3
    return True


def _push(state: StateInline, tag: str, found: re.Match[str], stop: int) -> None:
    if tag in _CODES:
        state.push("code_inline", "code", 0).content = unescape(state.src[found.end() : stop])
        return
    address = _ADDRESS.search(found["attributes"]) if tag == "a" else None
    target = state.md.normalizeLink(unescape(next(filter(None, address.groups()), ""))) if address else ""
    kind = "link" if target and state.md.validateLink(target) else _MARKS.get(tag, "")
    if tag == "sup":
        state.push("text", "", 0).content = "^"
    _inside(state, kind, found.end(), stop, {"href": target} if kind == "link" else {})


def _inside(state: StateInline, kind: str, start: int, stop: int, attributes: dict[str, str | int | float]) -> None:
    """Parse what is between two tags, or bars, into a piece of this kind; "" is none."""
    names = {"link": "a", "strong": "strong", "em": "em", "s": "s", "spoiler": "span"}
    if kind:
        state.push(f"{kind}_open", names[kind], 1).attrs = attributes
    before, state.pos, state.posMax = state.posMax, start, stop
    state.md.inline.tokenize(state)
    state.posMax = before
    if kind:
        state.push(f"{kind}_close", names[kind], -1)


def _spoiler(state: StateInline, silent: bool) -> bool:
    if (found := _SPOILER.match(state.src, state.pos, state.posMax)) is None:
        return False
    if not silent:
        _inside(state, "spoiler", found.start(1), found.end(1), {})
    state.pos = found.end()
    return True
