"""Sanitises external text for storage and display."""

import unicodedata


def storable(text: str) -> str:
    """The text as databases and providers accept it: without NUL, with lone surrogates replaced by question marks."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


def one_line(text: str, limit: int) -> str:
    """The text for use in a line: at most `limit` characters, without line breaks, markup or invisible ones."""
    seen = (" " if unicodedata.category(char) in _UNSEEN or char in "`" else char for char in text[: limit * 8])
    return " ".join("".join(seen).split())[:limit]


_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
