"""Sanitises external text for storage and display."""

import json
import re
import unicodedata

SHORTEST_QUOTE = 3


def storable(text: str) -> str:
    """The text as databases and providers accept it: without NUL, with lone surrogates replaced by question marks."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


def quotes_whole(text: str, value: str) -> bool:
    """Whether the value stands in the text for itself: `a@b.c` does not in `a@b.com`, nor `x.org` in `x.org/path`.

    Of a value that is short, or blank, nothing can be said.
    """
    if len(value.strip()) < SHORTEST_QUOTE:
        return False
    return (
        re.search(rf"(?<![^\s\"'“„(<\[,;:]){re.escape(value.strip())}(?![^\s\"'”)>\],;:.!?]|[.!?:]\S)", text)
        is not None
    )


def one_line(text: str, limit: int) -> str:
    """The text for use in a line: at most `limit` characters, without line breaks, markup or invisible ones."""
    seen = (" " if unicodedata.category(char) in _UNSEEN or char in "`" else char for char in text[: limit * 8])
    return " ".join("".join(seen).split())[:limit]


def printable(text: str, keep: str = "\n\t") -> str:
    """The text for a terminal: controls, bidirectional marks and invisible characters, except `keep`, as escapes."""
    if text.isprintable():
        return text
    kept = f"{keep}{_JOINERS}"
    shown = (char if char in kept or unicodedata.category(char) not in _UNSEEN else _escaped(char) for char in text)
    return "".join(shown)


def json_text(value: object, indent: int | None = None) -> str:
    """`value` as JSON; in plain ASCII if it holds anything that a terminal would obey."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if printable(text) == text else json.dumps(value, indent=indent)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
"""Persian words and many emoji are made with them."""


class GrowingText:
    """Text that comes in many pieces, kept as one block: a hundred thousand small strings leave memory in shreds."""

    def __init__(self) -> None:
        self._written = bytearray()

    def add(self, piece: str) -> None:
        """Write it at the end."""
        self._written += piece.encode(errors="surrogatepass")

    def __str__(self) -> str:
        return self._written.decode(errors="surrogatepass")
