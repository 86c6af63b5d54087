"""Markdown → the few marks WhatsApp knows: *bold*, _italic_, ~struck~, `code`, ```blocks```, > quotes."""

from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

LONGEST = 32_000
"""Characters of a rendered text; WhatsApp takes twice as many. A link that is used often is written out each time."""

_MARKS = {"strong": "*", "em": "_", "s": "~"}


def to_whatsapp(text: str) -> str:
    """Never raises, whatever a model wrote; what cannot be rendered is left as it is."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    rendered = _blocks(SyntaxTreeNode(parser.parse(text)).children)  # nested 20 deep at most, by the parser
    return rendered if rendered.strip() and len(rendered) <= LONGEST else text


def _blocks(nodes: Sequence[SyntaxTreeNode], gap: str = "\n\n") -> str:
    return gap.join(filter(None, map(_block, nodes)))


def _block(node: SyntaxTreeNode) -> str:
    match node.type:
        case "heading":
            return _marked("*", _inlines(node.children).replace("*", ""))
        case "fence" | "code_block":
            return f"```\n{node.content.rstrip()}\n```"
        case "blockquote":
            return "\n".join(f"> {line}" for line in _blocks(node.children).splitlines())
        case "bullet_list" | "ordered_list":
            return "\n".join(_items(node))
        case "table":
            return "```\n" + "\n".join(_rows(node)) + "\n```"
        case "hr":
            return "———"
        case _:
            return _inlines(node.children)


def _items(node: SyntaxTreeNode) -> Iterator[str]:
    """One line per item and nested item; nesting is shown by indentation."""
    number = int(node.attrs.get("start", 1))
    for offset, item in enumerate(node.children):
        mark = "-" if node.type == "bullet_list" else f"{number + offset}."
        lead = [child for child in item.children if not child.type.endswith("_list")]
        yield f"{mark} {_blocks(lead, gap=chr(10))}"
        for nested in item.children:
            if nested.type.endswith("_list"):
                yield from (f"  {line}" for line in _items(nested))


def _rows(node: SyntaxTreeNode) -> Iterator[str]:
    for part in node.children:
        for row in part.children:
            yield " | ".join(" ".join(_inlines(cell.children).split()) for cell in row.children)


def _inlines(nodes: Sequence[SyntaxTreeNode]) -> str:
    return "".join(map(_inline, nodes))


def _inline(node: SyntaxTreeNode) -> str:
    match node.type:
        case "text":
            return node.content
        case "code_inline":
            return f"`{node.content}`"
        case "softbreak" | "hardbreak":
            return "\n"
        case "strong" | "em" | "s":
            return _marked(_MARKS[node.type], _inlines(node.children))
        case "link" | "image":
            return _link(str(node.attrs.get("href") or node.attrs.get("src") or ""), _inlines(node.children))
        case _:
            return _inlines(node.children)


def _marked(mark: str, text: str) -> str:
    """WhatsApp wants its marks on a line of their own and next to the words."""
    return f"{mark}{text}{mark}" if text and text == text.strip() and "\n" not in text else text


def _link(target: str, label: str) -> str:
    """A reader sees where it goes."""
    return target or label if label in {"", target} else f"{label} ({target})"
