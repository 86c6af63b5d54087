"""Slack's markup → readable text, and Markdown → Slack's markup."""

import re
from collections.abc import Mapping, Sequence

from markdown_it.tree import SyntaxTreeNode

from gateway.domain.text.markdown import Renderer

_MARKUP = re.compile(r"<([^<>\n]{1,4000})>")
_PERSON = re.compile(r"<@(\w{1,64})(?:\|[^<>\n]*)?>")
_SPECIAL = re.compile(r"<(?=[@!#])")
_LINKS = re.compile(r"(https?|mailto):", re.IGNORECASE)
_MARKS = {"heading": "*", "strong": "*", "em": "_", "s": "~", "code_inline": "`"}
_NOTHING = "\u200b"
"""A zero-width space, where Slack would otherwise confuse marks and characters."""


def mentioned(text: str) -> tuple[str, ...]:
    """The ids of the people that a text mentions, each once."""
    return tuple(dict.fromkeys(match.group(1) for match in _PERSON.finditer(text)))


def without_mention(text: str, user: str) -> str:
    """The text without a mention of `user` at its beginning."""
    match = _PERSON.match(text.lstrip())
    return text.lstrip()[match.end() :].lstrip(" ,:") if match and match.group(1) == user else text


def readable(text: str, names: Mapping[str, str]) -> str:
    """Slack's markup as text: mentions by name, links as shown. Slack escapes markup that people type."""
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
            return label or f"@{target[1:].removeprefix('subteam^').partition('^')[0]}"
        case _:
            address = target.removeprefix("mailto:").removeprefix("tel:")
            bare = address.removeprefix("https://").removeprefix("http://").rstrip("/")
            return f"{label} ({address})" if label and label.rstrip("/") not in {address, bare} else address


def to_mrkdwn(text: str) -> str:
    """Markdown in Slack's markup. Never raises; only a blank text becomes blank."""
    shown = _Mrkdwn().render(text)
    return shown if shown.strip() else escape(text)


def defused(markdown: str) -> str:
    """Markdown for Slack's own renderer, with mentions disabled."""
    return _SPECIAL.sub("<\u2060", markdown)


MAX_TABLE = 44
"""Columns of a fixed-width font that fit a phone."""


def escape(text: str) -> str:
    """The text with `&`, `<` and `>` escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class _Mrkdwn(Renderer):
    def text(self, content: str) -> str:
        return escape(content)

    def marked(self, node: SyntaxTreeNode, inner: str) -> str:
        """Slack does not nest a mark in itself."""
        mark, around = _MARKS[node.type], node.parent
        while around is not None:
            if _MARKS.get(around.type) == mark:
                return inner
            around = around.parent
        if mark == "`":
            inner = inner.replace("`", "ˋ")
        return f"{mark}{inner}{mark}" if inner.strip() else inner

    def code(self, content: str) -> str:
        return f"```\n{escape(content).rstrip(chr(10)).replace('```', f'``{_NOTHING}`')}\n```"

    def table(self, rows: Sequence[Sequence[str]]) -> str:
        """A table that a phone would wrap is a list: each row with the names of its columns."""
        head, *body = rows
        if sum(2 + max(map(len, column)) for column in zip(*rows, strict=True)) <= MAX_TABLE or not body:
            return super().table(rows)
        records = (zip(map(self.text, head), map(self.text, row), strict=True) for row in body)
        lines = ([f"{name}: {cell}" if name else cell for name, cell in record if cell] for record in records)
        return "\n".join(f"{self.bullet} " + f"\n{self.indent}".join(each) for each in lines if each)

    def inlines(self, nodes: Sequence[SyntaxTreeNode]) -> str:
        """Slack accepts a mark only at the edge of a word, so one inside a word is set off by a zero-width space."""
        shown, edge = "", False
        for node in nodes:
            piece = self.show(node)
            marked = node.type in _MARKS
            if (marked or edge) and (edge or shown[-1:].isalnum()) and (marked or piece[:1].isalnum()):
                shown += _NOTHING
            shown, edge = shown + piece, marked
        return shown

    def link(self, target: str, label: str) -> str:
        """Links do not nest: a link in a link is only its text."""
        if not _LINKS.match(target) or not label.strip() or "<" in label:
            return label
        address = escape(target).replace("|", "%7C")
        return f"<{address}>" if label == address else f"<{address}|{label.replace(chr(10), ' ').replace('|', '¦')}>"
