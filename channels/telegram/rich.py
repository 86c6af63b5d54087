"""Markdown with tables or formulas → the HTML of Telegram's rich messages.

Our own HTML rather than Telegram's Markdown: with that, Telegram would load pictures from addresses that a model wrote,
and join lines. Everything is escaped, and no tag that loads anything is ever written.
"""

import re
from collections.abc import Sequence
from html import escape

from markdown_it.rules_inline import StateInline
from markdown_it.tree import SyntaxTreeNode

from channels.telegram.markdown import code, inlines, parser

_PERHAPS = re.compile(r"\|[ \t]*:?-|-:?[ \t]*\||\$|\\[(\[]|```math")
_FORMULA = re.compile(
    r"\$\$(?P<dollars>.+?)\$\$|\\\[(?P<square>.+?)\\\]|\\\((?P<round>.+?)\\\)|"
    r"\$(?![\s$])(?P<dollar>(?:[^$\\\n]|\\.)+?)(?<!\s)\$(?!\d)",
    re.DOTALL,
)


def to_rich(text: str) -> str | None:
    """None where nothing needs it: apps that are too old show a rich message as a note about themselves."""
    if not _PERHAPS.search(text):
        return None
    markdown = parser()
    markdown.inline.ruler.before("escape", "formula", _formula)
    try:
        page = SyntaxTreeNode(markdown.parse(text))
        if not any(node.type in {"table", "formula"} or _is_formula(node) for node in page.walk()):
            return None
        return _blocks(page.children)
    except RecursionError:
        return None


def _formula(state: StateInline, silent: bool) -> bool:
    """A rule of the parser: what stands between dollars as pandoc reads them, or in LaTeX's own brackets."""
    found = _FORMULA.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content = " ".join(str(found[found.lastgroup or 0]).split())
        token.markup = "block" if found.lastgroup in {"dollars", "square"} else ""
    state.pos = found.end()
    return True


def _is_formula(node: SyntaxTreeNode) -> bool:
    return node.type == "fence" and node.info.strip() == "math"


def _blocks(nodes: Sequence[SyntaxTreeNode]) -> str:
    return "".join(map(_block, nodes))


def _block(node: SyntaxTreeNode) -> str:
    match node.type:
        case "heading" | "blockquote" | "bullet_list" | "list_item":
            inner = _inline(node) if node.type == "heading" else _blocks(node.children)
            return f"<{node.tag}>{inner}</{node.tag}>"
        case "ordered_list":
            return f'<ol start="{int(node.attrs.get("start", 1))}">{_blocks(node.children)}</ol>'
        case "fence" | "code_block":
            return _math(node.content) if _is_formula(node) else code(node.content, node.info)
        case "table":
            rows = (map(_cell, row.children) for part in node.children for row in part.children)
            lines = (f"<tr>{''.join(row)}</tr>" for row in rows)
            return f"<table bordered>{''.join(lines)}</table>"
        case "hr":
            return "<hr/>"
        case _:
            return _paragraph(node)


def _paragraph(node: SyntaxTreeNode) -> str:
    """In a tight list it is only text; a formula that stands alone is a block."""
    parts = node.children[0].children if node.children else []
    if len(parts) == 1 and parts[0].type == "formula" and parts[0].markup:
        return _math(parts[0].content)
    return _inline(node) if node.hidden else f"<p>{_inline(node)}</p>"


def _math(formula: str) -> str:
    return f"<tg-math-block>{escape(formula.strip(), quote=False)}</tg-math-block>"


def _inline(node: SyntaxTreeNode) -> str:
    return inlines(node.children).replace("\n", "<br>")


def _cell(cell: SyntaxTreeNode) -> str:
    side = str(cell.attrs.get("style", "")).removeprefix("text-align:")
    align = f' align="{side}"' if side else ""
    return f"<{cell.tag}{align}>{_inline(cell)}</{cell.tag}>"
