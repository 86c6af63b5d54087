"""Markdown → the few marks WhatsApp knows: *bold*, _italic_, ~struck~, `code`, ```blocks```, > quotes."""

from collections.abc import Sequence

from markdown_it.tree import SyntaxTreeNode

from gateway.domain.text.markdown import Renderer

LONGEST = 32_000
"""Characters of a rendered text; WhatsApp takes twice as many. A link that is used often is written out each time."""

_MARKS = {"heading": "*", "strong": "*", "em": "_", "s": "~", "code_inline": "`"}


def to_whatsapp(text: str) -> str:
    """Never raises, whatever a model wrote; what cannot be rendered is left as it is."""
    rendered = _Marks().render(text)
    return rendered if rendered.strip() and len(rendered) <= LONGEST else text


class _Marks(Renderer):
    bullet = "-"
    indent = "  "
    picture = ""

    def marked(self, node: SyntaxTreeNode, inner: str) -> str:
        """WhatsApp wants its marks on a line of their own and next to the words."""
        if node.type == "heading":
            inner = inner.replace("*", "")
        known = node.type == "code_inline" or (inner and inner == inner.strip() and "\n" not in inner)
        return f"{_MARKS[node.type]}{inner}{_MARKS[node.type]}" if known else inner

    def code(self, content: str) -> str:
        return f"```\n{content.rstrip()}\n```"

    def link(self, target: str, label: str) -> str:
        """A reader sees where it goes."""
        return target or label if label in {"", target} else f"{label} ({target})"

    def cell(self, node: SyntaxTreeNode) -> str:
        return " ".join(self.inlines(node.children).split())

    def table(self, rows: Sequence[Sequence[str]]) -> str:
        """As a phone has room for it."""
        return self.code("\n".join(map(" | ".join, rows)))
