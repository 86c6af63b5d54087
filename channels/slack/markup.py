"""Slack's markup: what its writer sees, and Markdown as Slack shows it."""

import re
from collections.abc import Iterator, Mapping, Sequence

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from rich.cells import cell_len

_MARKUP = re.compile(r"<([^<>\n]{1,4000})>")
_PERSON = re.compile(r"<@(\w{1,64})(?:\|[^<>\n]*)?>")
_SPECIAL = re.compile(r"<(?=[@!#])")
_LINKS = re.compile(r"(https?|mailto):", re.IGNORECASE)
_MARKS = {"strong": "*", "em": "_", "s": "~"}
_NOTHING = "\u200b"
"""A space of no width: where Slack would else take a mark for a character, or a character for a mark."""


def mentioned(text: str) -> tuple[str, ...]:
    """The people a text names, by id, each once."""
    return tuple(dict.fromkeys(match.group(1) for match in _PERSON.finditer(text)))


def without_mention(text: str, user: str) -> str:
    """The text without the name it begins with, if that is `user`'s."""
    match = _PERSON.match(text.lstrip())
    if match is None or match.group(1) != user:
        return text
    return text.lstrip()[match.end() :].lstrip(" ,:")


def readable(text: str, names: Mapping[str, str]) -> str:
    """Mentions by name, links as they read, entities as characters; people may not forge markup, Slack escapes it."""
    shown = _MARKUP.sub(lambda match: _shown(match.group(1), names), text)
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("\0", "")


def _shown(content: str, names: Mapping[str, str]) -> str:
    target, _, label = content.partition("|")
    match target[:1]:
        case "@":
            return f"@{label or names.get(target[1:], target[1:])}"
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            return label or f"@{target[1:].partition('^')[0]}"
        case _:
            address = target.removeprefix("mailto:").removeprefix("tel:")
            bare = address.removeprefix("https://").removeprefix("http://").rstrip("/")
            return f"{label} ({address})" if label and label.rstrip("/") not in {address, bare} else address


def to_mrkdwn(text: str) -> str:
    """Never raises, whatever a model wrote, and is never blank for a text that is not."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    try:
        shown = _blocks(SyntaxTreeNode(parser.parse(text)).children)
    except RecursionError:
        shown = ""
    return shown if shown.strip() else escape(text)


def defused(markdown: str) -> str:
    """Markdown for Slack's own renderer, with nothing in it that would call people."""
    return _SPECIAL.sub("<\u2060", markdown)


def escape(text: str) -> str:
    """The three characters that Slack gives a meaning."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _blocks(nodes: Sequence[SyntaxTreeNode], gap: str = "\n\n") -> str:
    return gap.join(filter(None, map(_block, nodes)))


def _block(node: SyntaxTreeNode) -> str:
    match node.type:
        case "heading":
            return _marked("*", _inlines(node.children, "*"))
        case "fence" | "code_block":
            return _code(escape(node.content))
        case "blockquote":
            return "\n".join(f"> {line}" for line in _blocks(node.children).split("\n"))
        case "bullet_list" | "ordered_list":
            return "\n".join(_items(node))
        case "table":
            return _code(escape(_table(node)))
        case "hr":
            return "———"
        case _:
            return _inlines(node.children)


def _code(content: str) -> str:
    return f"```\n{content.rstrip(chr(10)).replace('```', f'``{_NOTHING}`')}\n```"


def _items(node: SyntaxTreeNode) -> Iterator[str]:
    """One line per item and nested item; nesting is shown by indentation."""
    number = int(node.attrs.get("start", 1))
    for offset, item in enumerate(node.children):
        mark = "•" if node.type == "bullet_list" else f"{number + offset}."
        lead = [child for child in item.children if not child.type.endswith("_list")]
        yield f"{mark} {_blocks(lead, gap=chr(10))}"
        for nested in item.children:
            if nested.type.endswith("_list"):
                yield from (f"    {line}" for line in _items(nested))


def _table(node: SyntaxTreeNode) -> str:
    rows = [[_plain(cell) for cell in row.children] for part in node.children for row in part.children]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines)


def _plain(node: SyntaxTreeNode) -> str:
    """What a cell says, without marks."""
    texts = (child.content for child in node.walk() if child.type in {"text", "code_inline"})
    return " ".join("".join(texts).split())


def _inlines(nodes: Sequence[SyntaxTreeNode], within: str = "") -> str:
    """Slack knows a mark only at the edge of a word: one inside a word gets an edge."""
    shown, edge = "", False
    for node in nodes:
        piece = _inline(node, within)
        marked = node.type in _MARKS or node.type == "code_inline"
        if (marked or edge) and (edge or shown[-1:].isalnum()) and (marked or piece[:1].isalnum()):
            shown += _NOTHING
        shown, edge = shown + piece, marked
    return shown


def _inline(node: SyntaxTreeNode, within: str) -> str:
    """`within` are the marks that are open: Slack does not nest one in itself."""
    match node.type:
        case "text":
            return escape(node.content)
        case "code_inline":
            return _marked("`", escape(node.content).replace("`", "ˋ"))
        case "softbreak" | "hardbreak":
            return "\n"
        case "strong" | "em" | "s":
            mark = _MARKS[node.type]
            inner = _inlines(node.children, within + mark)
            return inner if mark in within else _marked(mark, inner)
        case "link":
            return _link(str(node.attrs.get("href", "")), _inlines(node.children, within))
        case "image":
            return _link(str(node.attrs.get("src", "")), escape(_plain(node)) or "image")
        case _:
            return _inlines(node.children, within)


def _marked(mark: str, text: str) -> str:
    return f"{mark}{text}{mark}" if text.strip() else text


def _link(target: str, label: str) -> str:
    """Links do not nest: a link in a link is only its text."""
    if not _LINKS.match(target) or not label.strip() or "<" in label:
        return label
    address = escape(target).replace("|", "%7C")
    return f"<{address}>" if label == address else f"<{address}|{label.replace(chr(10), ' ').replace('|', '¦')}>"
