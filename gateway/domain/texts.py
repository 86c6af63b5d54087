"""Text from outside, made fit to be kept and to be shown."""

import unicodedata


def storable(text: str) -> str:
    """The text as databases and providers take it: without NUL, half a surrogate pair as a question mark."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


def one_line(text: str, limit: int) -> str:
    """A name for a line of our own: at most `limit` characters, none that is invisible, breaks it or marks it up."""
    seen = (" " if unicodedata.category(char) in _UNSEEN or char in "`" else char for char in text[: limit * 8])
    return " ".join("".join(seen).split())[:limit]


_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
