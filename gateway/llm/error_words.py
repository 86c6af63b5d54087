"""Facts in the words of a provider's error: times, limits, and what it only quotes of the prompt."""

import re
from collections.abc import Iterable, Sequence

OUTPUT = re.compile(
    r"max_(completion_|output_|new_)?tokens|maxOutputTokens|(completion|output|generated?) tokens"
    r"|in the (completion|output)",
    re.IGNORECASE,
)
"""The length of an answer."""
OUTPUT_BOUND = re.compile(
    r"(?:max_(?:completion_|output_|new_)?tokens\W|maximum tokens you requested ).{0,60}?"
    r"(?:less than or equal to|at most|\[\d+,|between \d+ and|exceeds the model limit of)\D{0,5}(\d+)",
    re.IGNORECASE | re.DOTALL,
)
"""The longest answer of a model, whatever the prompt is."""
_QUOTE_WORDS = 4
"""So many words in a row that are in the prompt, too, are a quote of it."""
_WORD = re.compile(r"\w+")


def unquoted(message: str, texts: Iterable[str]) -> str:
    """The message without what it quotes of these texts."""
    words = list(_WORD.finditer(message))
    runs = {_run(words, at): at for at in range(len(words) - _QUOTE_WORDS + 1)}
    quoted = set[int]()
    for text in texts if runs else ():
        there = list(_WORD.finditer(text))
        found = (runs.get(_run(there, at)) for at in range(len(there) - _QUOTE_WORDS + 1))
        quoted |= {at + further for at in found if at is not None for further in range(_QUOTE_WORDS)}
    for at in sorted(quoted, reverse=True):
        message = message[: words[at].start()] + message[words[at].end() :]
    return message


def _run(words: Sequence[re.Match[str]], at: int) -> tuple[str, ...]:
    return tuple(word[0].lower() for word in words[at : at + _QUOTE_WORDS])


_LEAST_ROOM = 256
_INPUT_TOKENS = re.compile(
    r"(\d+)\s*\+\s*\d+|prompt contains (\d+)"
    r"|(\d+)\s*(?:tokens )?(?:of|in|from)?(?: the| your)? ?(?:text |tool )?(?:input|messages|prompt)",
    re.IGNORECASE,
)
_WINDOW = re.compile(r"(?:context (?:length|limit|window|size)|>|<=)\D{0,20}(\d+)", re.IGNORECASE)


def output_room(words: str, asked: int, *, too_long: bool) -> int | None:
    """The longest answer, in tokens, that a provider would take instead of `asked`; None if it doesn't say.

    `too_long`: the prompt and the answer are too long together.
    """
    if too_long:
        given, window = _INPUT_TOKENS.findall(words.replace("`", "")), _WINDOW.findall(words)
        room = int(window[-1]) - sum(int("".join(one)) for one in given) if given and window else 0
        if room >= asked and OUTPUT.search(words):
            room = asked // 4
    elif bound := OUTPUT_BOUND.search(words):
        room = int(bound[1])
    else:
        named = [int(number) for number in re.findall(r"\d+", words)] if OUTPUT.search(words) else []
        room = max((number for number in named if number < asked), default=0) if asked in named else 0
    return room if _LEAST_ROOM <= room < asked else None


_SPAN = re.compile(
    r"(\d+(?:\.\d+)?|\ban?\b) ?(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|[秒分])(?![a-z])", re.I
)
_UNTIL = re.compile(
    rf"(?:try|retry|again|after|reset|wait|cool|请)\D{{0,30}}?((?:{_SPAN.pattern},? ?(?:and )?)+)", re.IGNORECASE
)
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "秒": 1.0, "分": 60.0}


def seconds_in(message: str) -> float | None:
    """The time to wait that a message names in words, such as "try again in 1m12.5s"."""
    if not (found := _UNTIL.search(message)):
        return None
    spans = ((float(number) if number[0].isdigit() else 1.0, name.lower()) for number, name in _SPAN.findall(found[1]))
    return sum(number * (0.001 if name[:3] in ("ms", "mil") else _UNIT_S[name[0]]) for number, name in spans)
