"""The direction of a text: right to left if most of its letters are, whatever its first word is."""

import re
import unicodedata

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
