"""Removes passages from texts, by whole sentences, whatever the case, the markup or the escapes."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain

from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import Json

ERASED = "[erased]"
SHORTEST = 3
"""Letters and digits of words that someone may name."""
_TELLING = 20
"""Letters of what was said that make it known elsewhere; "yes, please" is in many messages."""
_CLIPPED = 100
"""Letters from the beginning of a text by which its shortened copies are known."""

_WORD = re.compile("(?:\\\\u[0-9a-fA-F]{4}|[^\\W_]|[\u0300-\u036f])+")
_ESCAPE = re.compile(r"\\[nrtbf]")
_CODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_SENTENCE = re.compile(r"[\n.!?。！？]+")
_ENDS = frozenset('\n.!?。！？"\\<>')
_LEAD = " \t#*->|"
_AGAIN = re.compile(r"\[erased\](?:[ \t]*\[erased\])+")


class Erasure:
    """Finds passages: the sentences of what was said wherever they are quoted, and words somebody named in any text."""

    def __init__(self, exact: Iterable[str], said: Iterable[str]) -> None:
        self._exact = sorted({" ".join(_words(text)) for text in exact if letters(text) >= SHORTEST})
        self._said: dict[str, set[tuple[str, ...]]] = {}
        for text in said:
            for passage in _passages(text):
                if words := tuple(_words(passage)):
                    self._said.setdefault(words[0], set()).add(words)
        passages = [*(passage.split() for passage in self._exact), *chain.from_iterable(self._said.values())]
        self._longest = {max(passage, key=len) for passage in passages}
        """A word of each passage; text that has none of them need not be cut into words."""

    def in_text(self, text: str) -> bool:
        """Whether there is something to erase."""
        return any(True for _ in self._found(text))

    def clean(self, text: str) -> str:
        """The text with a mark in the place of each sentence that holds such a passage; the same if none does."""
        parts, done = list[str](), 0
        for start, end in sorted(_sentence(text, *span) for span in self._found(text)):
            if end > done:
                parts += [text[done : max(start, done)], ERASED]
                done = end
        return _AGAIN.sub(ERASED, "".join([*parts, text[done:]])) if parts else text

    def clean_json(self, value: Json) -> Json:
        """The same for each text in it."""
        match value:
            case str():
                return self.clean(value)
            case list():
                return [self.clean_json(each) for each in value]
            case dict():
                return {self.clean(name): self.clean_json(each) for name, each in value.items()}
            case _:
                return value

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each passage in the text."""
        if "\\u" not in text:
            plain = _plain(text)
            if not any(word in plain for word in self._longest):
                return
        spans = [match.span() for match in _WORD.finditer(_ESCAPE.sub("  ", text))]
        words = [_plain(text[start:end]) for start, end in spans]
        for place, word in enumerate(words):
            for passage in self._said.get(word, ()):
                if words[place : place + len(passage)] == list(passage):
                    yield spans[place][0], spans[place + len(passage) - 1][1]
        line, starts = " ".join(words), list(accumulate((len(word) + 1 for word in words), initial=0))
        for phrase in self._exact:
            place = line.find(phrase)
            while place >= 0:
                last = bisect_left(starts, place + len(phrase)) - 1
                yield spans[bisect_right(starts, place) - 1][0], spans[last][1]
                place = line.find(phrase, place + 1)


def check_words(also: Iterable[str]) -> None:
    """Raise `OwnerMustAct` for words that are too short to name."""
    if short := [words for words in also if letters(words) < SHORTEST]:
        raise OwnerMustAct(f'"{short[0]}" would be in everything; give at least {SHORTEST} letters')


def letters(text: str) -> int:
    """How many letters and digits a text has."""
    return sum(map(len, _words(text)))


def _words(text: str) -> list[str]:
    return [_plain(word) for word in _WORD.findall(_ESCAPE.sub("  ", text))]


def _plain(word: str) -> str:
    if word.isascii():
        if "\\" not in word:
            return word.lower()
        word = _CODE.sub(lambda code: chr(int(code[1], 16)), word)
        word = word.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return unicodedata.normalize("NFKC", word).casefold()


def _passages(text: str) -> Iterator[str]:
    """The sentences of a text that tell it from others, and how a shortened copy begins."""
    beginning = text[:_CLIPPED].rpartition(" ")[0] if len(text) > _CLIPPED else text
    for passage in (*_SENTENCE.split(text), beginning):
        if len(passage.strip()) >= (_TELLING if passage.isascii() else _TELLING // 3):
            yield passage


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """The ends of the sentence or sentences around a stretch, without what leads a line."""
    while start and text[start - 1] not in _ENDS:
        start -= 1
    while text[start] in _LEAD:
        start += 1
    while end < len(text) and text[end] not in _ENDS:
        end += 1
    return start, end + (text[end : end + 1] in (".", "!", "?"))
