"""Syntax highlighting: code to escaped HTML in which only spans with a few classes are added."""

import re
from collections.abc import Iterator
from itertools import groupby

from markupsafe import escape

LONGEST, LONGEST_LINE = 8_000, 250
"""Characters of a block and of a line of it; what is longer is shown as it is."""

_NAMES = """
bash c c++ console cpp css diff docker dockerfile go golang graphql http ini javascript js json jsx julia kotlin lua
make makefile nginx objective-c php py pycon python python3 rb ruby rs rust scala sh shell sql swift toml xml yaml yml
zsh
"""
_LEXERS = {name: name for name in _NAMES.split()} | {
    **dict.fromkeys(("c#", "cs", "csharp", "java", "ts", "tsx", "typescript"), "javascript"),
    "html": "xml",
    "kt": "kotlin",
    "patch": "diff",
}
"""Those that stay fast whatever the code is, which was tried; for some that do not, a relative that does."""

_BLANK = re.compile(r"((?:[ \t]*\n){4,})")
"""Lexers of many languages take ever longer over blank lines, so these are left out."""

_CLASSES = {
    "Token.Comment": "c",
    "Token.Generic.Deleted": "d",
    "Token.Generic.Heading": "f",
    "Token.Generic.Inserted": "i",
    "Token.Generic.Subheading": "f",
    "Token.Keyword": "k",
    "Token.Literal.Number": "n",
    "Token.Literal.String": "s",
    "Token.Name.Attribute": "f",
    "Token.Name.Builtin": "f",
    "Token.Name.Class": "f",
    "Token.Name.Decorator": "f",
    "Token.Name.Function": "f",
    "Token.Name.Tag": "k",
}
CLASSES = frozenset(_CLASSES.values())


def highlighted(code: str, language: str) -> str:
    """The code as HTML; without colours if the language is not supported or the code is too long."""
    is_long = len(code) > LONGEST or max(map(len, code.split("\n"))) > LONGEST_LINE
    if is_long or language.lower() not in _LEXERS:
        return str(escape(code))
    parts = _BLANK.split(code)
    pieces = [piece for part in parts for piece in _pieces(part, _LEXERS[language.lower()])]
    if "".join(text for _, text in pieces) != code:
        return str(escape(code))
    return "".join(
        f'<span class="{name}">{escape(text)}</span>' if name else str(escape(text)) for name, text in pieces
    )


def _pieces(code: str, language: str) -> Iterator[tuple[str, str]]:
    """Texts with their class; neighbours of one class are one piece."""
    if not code.strip():
        yield "", code
        return
    from pygments.lexers import get_lexer_by_name

    tokens = get_lexer_by_name(language, stripnl=False, ensurenl=False).get_tokens(code)
    for name, same in groupby(tokens, key=lambda token: _class(str(token[0]))):
        yield name, "".join(text for _, text in same)


def _class(kind: str) -> str:
    while kind and kind not in _CLASSES:
        kind = kind.rpartition(".")[0]
    return _CLASSES.get(kind, "")
