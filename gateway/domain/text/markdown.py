"""Markdown as messengers show it, and as a voice reads it: one walk over the parsed text, which each renders."""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from gateway.domain.text import html


def parser(*, folds: bool = False) -> MarkdownIt:
    """The Markdown that models write: CommonMark with tables; of HTML what Markdown can say, too, and spoilers.

    `folds`: `html.FOLD` and `UNFOLD` stand around what is folded.
    """
    made = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    html.add_rules(made, folds=folds)
    return made


class Renderer(ABC):
    """Markdown → text with a messenger's own marks."""

    bullet = "•"
    indent = "    "
    gap = "\n\n"
    picture = "image"
    """Name of a picture without a description."""

    def render(self, text: str) -> str:
        """Never raises, whatever a model wrote: what is nested too deep is only text."""
        try:
            return self.blocks(SyntaxTreeNode(parser().parse(text)).children, self.gap)
        except RecursionError:
            return self.text(text)

    def text(self, content: str) -> str:
        """Words without any mark."""
        return content

    @abstractmethod
    def marked(self, node: SyntaxTreeNode, inner: str) -> str:
        """A heading, `strong`, `em`, `s` or `code_inline`."""

    @abstractmethod
    def code(self, content: str) -> str:
        """A block in a fixed-width font."""

    def quote(self, inner: str) -> str:
        """A quotation of somebody else."""
        return "\n".join(f"> {line}" for line in inner.split("\n"))

    @abstractmethod
    def link(self, target: str, label: str) -> str:
        """A link, or a picture, which is never loaded."""

    def cell(self, node: SyntaxTreeNode) -> str:
        """Text of a table's cell, on one line and without marks."""
        return " ".join(_words(node).split())

    def table(self, rows: Sequence[Sequence[str]]) -> str:
        """Columns in a fixed-width font, the first row underlined."""
        widths = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell + " " * (width - _columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines.insert(1, "  ".join("─" * width for width in widths))
        return self.code("\n".join(lines))

    def blocks(self, nodes: Sequence[SyntaxTreeNode], gap: str) -> str:
        """Paragraphs and what else stands on lines of its own."""
        return gap.join(filter(None, map(self.show, nodes)))

    def inlines(self, nodes: Sequence[SyntaxTreeNode]) -> str:
        """The text of a paragraph or a cell; a line break is one."""
        return "".join(map(self.show, nodes))

    def show(self, node: SyntaxTreeNode) -> str:
        """Any node of the tree."""
        match node.type:
            case "text":
                return self.text(node.content)
            case "softbreak" | "hardbreak":
                return "\n"
            case "code_inline":
                return self.marked(node, self.text(node.content))
            case "heading" | "strong" | "em" | "s":
                return self.marked(node, self.inlines(node.children))
            case "link":
                return self.link(str(node.attrs.get("href", "")), self.inlines(node.children))
            case "image":
                return self.link(str(node.attrs.get("src", "")), self.text(_words(node)) or self.picture)
            case "fence" | "code_block":
                return self.code(node.content)
            case "blockquote":
                inner = self.blocks(node.children, self.gap)
                return self.quote(inner) if inner else ""
            case "bullet_list" | "ordered_list":
                return "\n".join(self._items(node))
            case "table":
                return self.table([[self.cell(cell) for cell in row.children] for row in rows(node)])
            case "hr":
                return "———"
            case kind:
                inner = self.inlines(node.children)
                return directed(inner) if kind == "paragraph" else inner

    def _items(self, node: SyntaxTreeNode) -> Iterator[str]:
        """One line per item and nested item; nesting is shown by indentation."""
        number = int(node.attrs.get("start", 1))
        for offset, item in enumerate(node.children):
            mark = self.bullet if node.type == "bullet_list" else f"{number + offset}."
            text = self.blocks([child for child in item.children if not child.type.endswith("_list")], chr(10))
            box = {"[ ] ": "☐", "[x] ": "☑", "[X] ": "☑"}.get(text[:4])
            yield f"{box} {text[4:]}" if box else f"{mark} {text}"
            for nested in item.children:
                if nested.type.endswith("_list"):
                    yield from (f"{self.indent}{line}" for line in self._items(nested))


def rows(table: SyntaxTreeNode) -> Iterator[SyntaxTreeNode]:
    """The rows of a table, its head first."""
    return (row for part in table.children for row in part.children)


def _words(node: SyntaxTreeNode) -> str:
    leaves = (child for child in node.walk() if not child.children)
    return "".join(" " if leaf.type.endswith("break") else leaf.content for leaf in leaves)


def _columns(text: str) -> int:
    """How many cells of a monospaced font `text` takes."""
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text if not unicodedata.combining(char)
    )


RIGHT_TO_LEFT_MARK = "\u200f"
_UNSPOKEN = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|<[^<>]*>|https?://\S+", re.DOTALL)
"""Code, tags and addresses: they run from left to right in any language."""


def is_right_to_left(text: str) -> bool:
    """Whether most letters are of a script such as Arabic or Hebrew."""
    if text.isascii():
        return False
    kinds = [unicodedata.bidirectional(char) for char in _UNSPOKEN.sub(" ", text)]
    return sum(kind in {"R", "AL"} for kind in kinds) > kinds.count("L")


def directed(paragraph: str) -> str:
    """The paragraph with a mark before each line that reads from right to left but begins with a letter that doesn't.

    Apps take the direction of a line from its first letter.
    """
    return paragraph if paragraph.isascii() else "\n".join(map(_directed_line, paragraph.split("\n")))


def _directed_line(line: str) -> str:
    kinds = (unicodedata.bidirectional(char) for char in _UNSPOKEN.sub("x", line))
    first = next((kind for kind in kinds if kind in {"L", "R", "AL"}), "")
    return f"{RIGHT_TO_LEFT_MARK}{line}" if first == "L" and is_right_to_left(line) else line


MAX_SPOKEN = 1_500
"""Characters, about two minutes; services take 4,096."""
REST_IN_TEXT = "The rest is in the text."
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)


def spoken(markdown: str) -> str:
    """The words of an answer that are read aloud; "" if it has no words but code, tables or addresses."""
    text = _ADDRESS.sub("", _Spoken().render(markdown))
    text = re.sub(r"[ \t]+", " ", re.sub(r"\n{2,}", "\n", text)).strip()
    if not re.search(r"\w", text):
        return ""
    return text if len(text) <= MAX_SPOKEN else f"{_beginning(text[:MAX_SPOKEN])} {REST_IN_TEXT}"


def _beginning(text: str) -> str:
    """The whole sentences, or at worst the whole words."""
    ends = [match.end() for match in re.finditer(r"[.!?…。！？](?=\s|$)|\n", text)]
    return text[: ends[-1]].strip() if ends else text.rpartition(" ")[0] or text


class _Spoken(Renderer):
    bullet = indent = picture = ""

    def marked(self, _node: SyntaxTreeNode, inner: str) -> str:
        return inner

    def code(self, _content: str) -> str:
        return ""

    def quote(self, inner: str) -> str:
        return inner

    def link(self, target: str, label: str) -> str:
        return "" if label == target else label

    def table(self, _rows: Sequence[Sequence[str]]) -> str:
        return ""
