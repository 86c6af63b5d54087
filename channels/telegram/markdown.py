"""Markdown → the few HTML tags Telegram knows, and, for tables and formulas, the HTML of its rich messages.

HTML rather than Telegram's Markdown: with that, Telegram would load pictures from addresses that a model wrote,
and join lines. Everything is escaped, and no tag that loads anything is ever written."""

import re
from contextlib import suppress
from html import escape, unescape

from markdown_it.rules_inline import StateInline
from markdown_it.tree import SyntaxTreeNode

from gateway.domain.text.markdown import Renderer, parser, rows

_LINKS = re.compile(r"(https?|tg|mailto):", re.IGNORECASE)
_LANGUAGE = re.compile(r"[\w+#.-]+")
_ANCHOR = re.compile(r"</?a\b[^>]*>")
_QUOTE = re.compile(r"</?blockquote>")
_TAG = re.compile(r"<[^>]*>")
_TAGS = {"heading": "b", "strong": "b", "em": "i", "s": "s", "code_inline": "code"}


def to_html(text: str) -> str:
    """Never raises, whatever a model wrote; tags are always balanced."""
    return Html().render(text)


def visible(html: str) -> str:
    """The visible text of HTML that `to_html` made, whose length Telegram limits."""
    return unescape(_TAG.sub("", html))


class Html(Renderer):
    """Tags that mark; links and quotes do not nest."""

    def text(self, content: str) -> str:
        """Without anything that could be a tag."""
        return escape(content, quote=False)

    def marked(self, node: SyntaxTreeNode, inner: str) -> str:
        """Within the tag that looks most like it."""
        return f"<{_TAGS[node.type]}>{inner}</{_TAGS[node.type]}>"

    def show(self, node: SyntaxTreeNode) -> str:
        """Spoilers hidden, code with the name of its language, if it is one; all else as always."""
        if node.type == "spoiler":
            return f"<tg-spoiler>{self.inlines(node.children)}</tg-spoiler>"
        if node.type != "fence" or not (language := _LANGUAGE.match(node.info.strip())):
            return super().show(node)
        shown = self.text(node.content.rstrip("\n"))
        return f'<pre><code class="language-{language.group()}">{shown}</code></pre>'

    def code(self, content: str) -> str:
        """Spaces and lines as they are."""
        return f"<pre>{self.text(content.rstrip(chr(10)))}</pre>"

    def quote(self, inner: str) -> str:
        """A quote in a quote is only its text."""
        return f"<blockquote>{_QUOTE.sub('', inner)}</blockquote>"

    def link(self, target: str, label: str) -> str:
        """A picture in a link is only its text."""
        label = _ANCHOR.sub("", label)
        return f'<a href="{escape(target)}">{label}</a>' if _LINKS.match(target) and label else label


_PERHAPS = re.compile(r"\|[ \t]*:?-|-:?[ \t]*\||\$|\\[(\[]|```math")
_FORMULA = re.compile(
    r"\$\$(?P<dollars>.+?)\$\$|\\\[(?P<square>.+?)\\\]|\\\((?P<round>.+?)\\\)|"
    r"\$(?![\s$])(?P<dollar>(?:[^$\\\n]|\\.)+?)(?<!\s)\$(?!\d)",
    re.DOTALL,
)


def to_rich(text: str) -> str | None:
    """The text as a rich message; None if plain HTML suffices, since old apps can't show rich messages."""
    if not _PERHAPS.search(text):
        return None
    markdown = parser()
    markdown.inline.ruler.before("escape", "formula", _formula)
    with suppress(RecursionError):
        page = SyntaxTreeNode(markdown.parse(text))
        if any(node.type in {"table", "formula"} or _is_formula(node) for node in page.walk()):
            return _Page().blocks(page.children, "")
    return None


def _formula(state: StateInline, silent: bool) -> bool:
    """A rule of the parser: what stands between dollars as pandoc reads them, or in LaTeX's own brackets."""
    if (found := _FORMULA.match(state.src, state.pos)) is None:
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content = " ".join(str(found[found.lastgroup or 0]).split())
        token.markup = "block" if found.lastgroup in {"dollars", "square"} else ""
    state.pos = found.end()
    return True


def _is_formula(node: SyntaxTreeNode) -> bool:
    return node.type == "fence" and node.info.strip() == "math"


class _Page(Html):
    gap = ""

    def show(self, node: SyntaxTreeNode) -> str:
        match node.type:
            case "softbreak" | "hardbreak":
                return "<br>"
            case "heading" | "bullet_list" | "list_item":
                return f"<{node.tag}>{self.inlines(node.children)}</{node.tag}>"
            case "ordered_list":
                return f'<ol start="{int(node.attrs.get("start", 1))}">{self.inlines(node.children)}</ol>'
            case "table":
                lines = (f"<tr>{''.join(map(self.cell, row.children))}</tr>" for row in rows(node))
                return f"<table bordered>{''.join(lines)}</table>"
            case "hr":
                return "<hr/>"
            case "formula":
                return f"<tg-math>{self.text(node.content)}</tg-math>"
            case "fence" if _is_formula(node):
                return self._math(node.content)
            case "paragraph":
                return self._paragraph(node)
            case _:
                return super().show(node)

    def quote(self, inner: str) -> str:
        return f"<blockquote>{inner}</blockquote>"

    def cell(self, node: SyntaxTreeNode) -> str:
        side = str(node.attrs.get("style", "")).removeprefix("text-align:")
        align = f' align="{side}"' if side else ""
        return f"<{node.tag}{align}>{self.inlines(node.children)}</{node.tag}>"

    def _paragraph(self, node: SyntaxTreeNode) -> str:
        """A paragraph: only its text in a tight list, a block for a formula that stands alone."""
        parts = node.children[0].children if node.children else []
        if len(parts) == 1 and parts[0].type == "formula" and parts[0].markup:
            return self._math(parts[0].content)
        inner = self.inlines(node.children)
        return inner if node.hidden else f"<p>{inner}</p>"

    def _math(self, formula: str) -> str:
        return f"<tg-math-block>{self.text(formula.strip())}</tg-math-block>"
