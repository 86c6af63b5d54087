"""Markdown → the few HTML tags Telegram knows; everything else is escaped."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from html import escape, unescape

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

_LINKS = re.compile(r"(https?|tg|mailto):", re.IGNORECASE)
_LANGUAGE = re.compile(r"[\w+#.-]+")
_ANCHOR = re.compile(r"</?a\b[^>]*>")
_TAG = re.compile(r"<[^>]*>")
_MARKS = {"strong": "b", "em": "i", "s": "s"}


def to_html(text: str) -> str:
    """Never raises, whatever a model wrote; tags are always balanced."""
    try:
        return _blocks(SyntaxTreeNode(parser().parse(text)).children)
    except RecursionError:
        return escape(text, quote=False)


def parser() -> MarkdownIt:
    """What models write: CommonMark with tables, and no HTML."""
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def visible(html: str) -> str:
    """What a reader sees of our own HTML: the text whose length Telegram limits."""
    return unescape(_TAG.sub("", html))


def _blocks(nodes: Sequence[SyntaxTreeNode], *, quoted: bool = False, gap: str = "\n\n") -> str:
    return gap.join(filter(None, (_block(node, quoted) for node in nodes)))


def _block(node: SyntaxTreeNode, quoted: bool) -> str:
    match node.type:
        case "heading":
            return f"<b>{inlines(node.children)}</b>"
        case "fence" | "code_block":
            return code(node.content, node.info)
        case "blockquote":
            inner = _blocks(node.children, quoted=True)
            return inner if quoted else f"<blockquote>{inner}</blockquote>"
        case "bullet_list" | "ordered_list":
            return "\n".join(_items(node, quoted))
        case "table":
            return f"<pre>{escape(_table(node), quote=False)}</pre>"
        case "hr":
            return "———"
        case _:
            return inlines(node.children)


def code(content: str, info: str) -> str:
    """A block of code, with the name of its language if it is one."""
    shown = escape(content.rstrip("\n"), quote=False)
    language = _LANGUAGE.match(info.strip())
    return f'<pre><code class="language-{language.group()}">{shown}</code></pre>' if language else f"<pre>{shown}</pre>"


def _items(node: SyntaxTreeNode, quoted: bool) -> Iterator[str]:
    """One line per item and nested item; nesting is shown by indentation."""
    number = int(node.attrs.get("start", 1))
    for offset, item in enumerate(node.children):
        mark = "•" if node.type == "bullet_list" else f"{number + offset}."
        lead = [child for child in item.children if not child.type.endswith("_list")]
        yield f"{mark} {_blocks(lead, quoted=quoted, gap=chr(10))}"
        for nested in item.children:
            if nested.type.endswith("_list"):
                yield from (f"    {line}" for line in _items(nested, quoted))


def _table(node: SyntaxTreeNode) -> str:
    rows = [[_plain(cell) for cell in row.children] for part in node.children for row in part.children]
    widths = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell + " " * (width - _columns(cell)) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _columns(text: str) -> int:
    """How many cells of a monospaced font `text` takes."""
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text if not unicodedata.combining(char)
    )


def _plain(node: SyntaxTreeNode) -> str:
    return " ".join(visible(inlines(node.children)).split())


def inlines(nodes: Sequence[SyntaxTreeNode]) -> str:
    """The text of a paragraph or a cell; a line break is one."""
    return "".join(map(_inline, nodes))


def _inline(node: SyntaxTreeNode) -> str:
    match node.type:
        case "text":
            return escape(node.content, quote=False)
        case "code_inline":
            return f"<code>{escape(node.content, quote=False)}</code>"
        case "formula":
            return f"<tg-math>{escape(node.content, quote=False)}</tg-math>"
        case "softbreak" | "hardbreak":
            return "\n"
        case "strong" | "em" | "s":
            tag = _MARKS[node.type]
            return f"<{tag}>{inlines(node.children)}</{tag}>"
        case "link":
            return _link(str(node.attrs.get("href", "")), inlines(node.children))
        case "image":
            return _link(str(node.attrs.get("src", "")), inlines(node.children) or "image")
        case _:
            return inlines(node.children)


def _link(target: str, label: str) -> str:
    """Links do not nest: an image in a link is only its text."""
    label = _ANCHOR.sub("", label)
    return f'<a href="{escape(target)}">{label}</a>' if _LINKS.match(target) and label else label
