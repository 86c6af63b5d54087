"""The words of an answer as a voice can read them: without code, tables, addresses and marks."""

import re
from collections.abc import Sequence

from markdown_it.tree import SyntaxTreeNode

from gateway.domain.text.markdown import Renderer

MAX_SPOKEN = 1_500
"""Characters, about two minutes; services take 4,096."""
REST_IN_TEXT = "The rest is in the text."
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?…。！？](?=\s|$)|\n")


def spoken(markdown: str) -> str:
    """The words of an answer that are read aloud; "" if it has no words but code, tables or addresses."""
    text = _ADDRESS.sub("", _Words().render(markdown))
    text = re.sub(r"[ \t]+", " ", re.sub(r"\n{2,}", "\n", text)).strip()
    if not re.search(r"\w", text):
        return ""
    return text if len(text) <= MAX_SPOKEN else f"{_beginning(text[:MAX_SPOKEN])} {REST_IN_TEXT}"


def _beginning(text: str) -> str:
    """The whole sentences, or at worst the whole words."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    return text[: ends[-1]].strip() if ends else text.rpartition(" ")[0] or text


class _Words(Renderer):
    bullet = ""
    indent = ""
    picture = ""

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
