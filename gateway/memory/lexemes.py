"""The words by which rows are found."""


def lexemes(text: str) -> tuple[str, ...]:
    """Each word once."""
    return tuple(dict.fromkeys(word[:64] for word in text.casefold().split()))
