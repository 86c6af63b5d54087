"""The words by which rows are found, one rule for rows and queries in every language, and the passages of long texts.

The language is never guessed: a chat mixes several. Words of alphabets are folded and cut to five letters, which
serves most inflections; numbers and ids stay whole. Chinese and Japanese give characters and pairs of them, Korean
pairs of syllables without particles, scripts without spaces (Thai, Lao, Burmese, Khmer) triples of characters.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

LETTERS_KEPT = 5
MAX_ID_LENGTH = 64
MAX_LEXEMES = 4096
"""Of one row: Postgres refuses a tsvector of a megabyte."""

_HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f"
_KANA = "\u3041-\u3096\u30a1-\u30fa\u30fc"
_HANGUL = "\uac00-\ud7a3"
_UNSPACED = "\u0e01-\u0e4e\u0e81-\u0edf\u1000-\u103f\u1780-\u17d3"
_INDIC = "\u0900-\u0963\u0970-\u0dff"
_HEBREW = "\u05d0-\u05ea"
_ARABIC = "\u0620-\u06d3"
_RUN = re.compile(
    f"(?P<east>[{_HAN}{_KANA}]+)|(?P<korean>[{_HANGUL}]+)|(?P<unspaced>[{_UNSPACED}]+)|(?P<indic>[{_INDIC}]+)"
    f"|(?P<hebrew>[{_HEBREW}]+)|(?P<arabic>[{_ARABIC}]+)"
    f"|(?P<word>(?:(?![{_HAN}{_KANA}{_HANGUL}{_UNSPACED}{_INDIC}{_HEBREW}{_ARABIC}])[^\\W_])+)"
)
_MARKS = re.compile(  # accents, points, vowel and tone marks that writers leave out, and the Arabic stretching stroke
    "[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed\u093c\u09bc\u0a3c\u0e47-\u0e4e]"
)
_LETTERS = str.maketrans(  # letters that do not decompose
    {"ı": "i", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "æ": "ae", "œ": "oe", "þ": "th"}
    | {"ى": "ي", "ة": "ه", "ک": "ك", "ی": "ي"}
)
_GROUPED = re.compile(r"(?<=\d)[.,'’](?=\d{3}(?!\d))")
_FUNCTION_CHARACTERS = frozenset("的了吗嗎呢吧啊呀着是什么麼我你您他她它们們这這那")
_HIRAGANA = re.compile("[\u3041-\u3096]+")
_PARTICLE = re.compile("(?:에서|에게|한테|으로|부터|까지|처럼|보다|이랑|은|는|이|가|을|를|에|의|도|만|로|와|과|랑)$")
_ARABIC_PREFIX = re.compile("^(?:[وفبك]?ال|لل|و(?=.{4}))(?=.{3})")
_ARABIC_SUFFIX = re.compile("(?<=.{3})(?:ات|ون|ين|ان|ها|هم|نا|يه|ه|ي)$")
_HEBREW_PREFIX = re.compile("^[והבכלמש](?=.{3})")
_HEBREW_SUFFIX = re.compile("(?<=.{3})(?:ים|ות|ה)$")
_INDIC_ENDING = re.compile("(?<=..)[\u0900-\u0903\u093e-\u094d\u0981-\u0983\u09be-\u09cd\u0b82\u0bbe-\u0bcd]+$")

_INFLECTION = re.compile(  # of Russian and its kin, of Greek; other languages are served by the cut alone
    "(?<=...)(?:ами|ями|ого|его|ому|ему|ыми|ими|ом|ем|ам|ям|ах|ях|ов|ев|ых|их|[аеиоуыэюяьіїє]{1,2}"
    "|ουσ|οσ|ων|ασ|εσ|ησ|[αεηιουω]{1,2})$"
)


def lexemes(text: str) -> tuple[str, ...]:
    """The distinct lexemes of `text`, in order; its stop words only if it has nothing else."""
    folded = fold(text)
    return _distinct(_lexemes(folded, _stop_words())) or _distinct(_lexemes(folded, frozenset()))


def fold(text: str) -> str:
    """`text` without case, accents, variants of letters and digits, and marks between thousands."""
    plain = unicodedata.normalize("NFKC", text).replace("İ", "i").replace("I", "i").casefold().translate(_LETTERS)
    bare = unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", plain))).translate(_LETTERS)
    if not bare.isascii():
        bare = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in bare)
    return _GROUPED.sub("", bare)


@cache
def _stop_words() -> frozenset[str]:
    lines = files(__package__).joinpath("stopwords.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in fold(line).split())


def _distinct(found: Iterator[str]) -> tuple[str, ...]:
    distinct: dict[str, None] = {}
    for lexeme in found:
        distinct[lexeme] = None
        if len(distinct) == MAX_LEXEMES:
            break
    return tuple(distinct)


def _lexemes(folded: str, stop: frozenset[str]) -> Iterator[str]:
    for run in _RUN.finditer(folded):
        word = run[0]
        match run.lastgroup:
            case "east":
                yield from _characters_and_pairs(word, stop)
            case "unspaced":
                yield from (word[i : i + 3] for i in range(max(1, len(word) - 2)))
            case _ if word in stop:
                pass
            case "korean":
                yield from (lexeme for lexeme in _syllable_pairs(word) if lexeme not in stop)
            case "hebrew":
                yield _stripped(_HEBREW_SUFFIX.sub("", word), _HEBREW_PREFIX)[:LETTERS_KEPT]
            case "arabic":
                yield _ARABIC_SUFFIX.sub("", _ARABIC_PREFIX.sub("", word))[:LETTERS_KEPT]
            case "indic":
                yield _INDIC_ENDING.sub("", word)[:LETTERS_KEPT]
            case _:
                yield (
                    word[:MAX_ID_LENGTH] if any(c.isdigit() for c in word) else _INFLECTION.sub("", word)[:LETTERS_KEPT]
                )


def _characters_and_pairs(run: str, stop: frozenset[str]) -> Iterator[str]:
    """Each Chinese character, since many are words; and pairs, except those of hiragana only (endings, particles)."""
    functions = _FUNCTION_CHARACTERS if stop else frozenset[str]()
    for i, character in enumerate(run):
        if character not in functions and (len(run) == 1 or not _is_kana(character)):
            yield character
        pair = run[i : i + 2]
        if len(pair) == 2 and pair not in stop and not functions.intersection(pair) and not _HIRAGANA.fullmatch(pair):
            yield pair


def _is_kana(character: str) -> bool:
    return "\u3041" <= character <= "\u30ff"


def _syllable_pairs(word: str) -> Iterator[str]:
    """The pairs of the stem; of a stem of two syllables also the first, if the second may be a particle."""
    stem = word
    while len(shorter := _PARTICLE.sub("", stem)) >= 2 and shorter != stem:
        stem = shorter
    yield from (stem[i : i + 2] for i in range(max(1, len(stem) - 1)))
    if len(stem) == 2 and _PARTICLE.search(stem):
        yield stem[0]


def _stripped(word: str, prefix: re.Pattern[str]) -> str:
    """`word` without any of its prefixes, removed one by one, so that words with one and two prefixes match."""
    while (shorter := prefix.sub("", word)) != word:
        word = shorter
    return word


PASSAGE_LENGTH = 1_000
"""The most characters of a passage, some 250 tokens, which an embedding model reads in full."""
OVERLAP_LENGTH = 150
MAX_PASSAGES = 300
"""The most passages of one text."""

_PAGE = re.compile(r"^--- page (\d+) ---\n", re.MULTILINE)
_BREAKS = ("\n\n", "\n", ". ", " ")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a text; `page` counts from 1, None if the text has no pages."""

    text: str
    page: int | None


def passages(text: str) -> tuple[Passage, ...]:
    """The passages in order, at most 300; none crosses a page."""
    found = (Passage(piece, page) for page, content in _pages(text) for piece in _pieces(content))
    return tuple(passage for _, passage in zip(range(MAX_PASSAGES), found, strict=False))


def _pages(text: str) -> Iterator[tuple[int | None, str]]:
    before, *rest = _PAGE.split(text)
    if before.strip():
        yield None, before
    for number, content in zip(rest[::2], rest[1::2], strict=True):
        yield int(number), content


def _pieces(text: str) -> Iterator[str]:
    """Cut at the last break of the best kind in the second half of a passage."""
    start = 0
    while start < len(text):
        end = _end(text, start)
        if piece := text[start:end].strip():
            yield piece
        if end >= len(text):
            return
        start = _start(text, end)


def _end(text: str, start: int) -> int:
    end = start + PASSAGE_LENGTH
    if end >= len(text):
        return len(text)
    breaks = ((text.rfind(mark, start + PASSAGE_LENGTH // 2, end), mark) for mark in _BREAKS)
    return next((at + len(mark) for at, mark in breaks if at >= 0), end)


def _start(text: str, end: int) -> int:
    """The start of the next passage: a word, a little before the end of the last."""
    at = text.find(" ", end - OVERLAP_LENGTH, end)
    return at + 1 if at >= 0 else end - OVERLAP_LENGTH
