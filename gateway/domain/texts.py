"""Text from outside, made fit to be kept."""


def storable(text: str) -> str:
    """The text as databases and providers take it: without NUL, half a surrogate pair as a question mark."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()
