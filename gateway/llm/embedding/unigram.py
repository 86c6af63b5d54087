"""Cuts a text into the pieces that a model knows: the most likely ones by the scores that come with it."""

import unicodedata
from collections.abc import Mapping, Sequence

_SPACE = "\u2581"
_INVISIBLE = str.maketrans({chr(code): " " for code in (0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0xFEFF, 0xFFFD)})
_FAR_BELOW = 10.0


class Unigram:
    """Pieces by their numbers. The first four are signs, which no text contains: begin, padding, end, unknown."""

    BEGIN, END, UNKNOWN, FIRST = 0, 2, 3, 4

    def __init__(self, pieces: Sequence[str], scores: Sequence[float]) -> None:
        self._numbers: Mapping[str, int] = {
            piece: number for number, piece in enumerate(pieces) if number >= self.FIRST
        }
        self._scores = scores
        self._longest = max(map(len, self._numbers))
        self._unknown = min(scores) - _FAR_BELOW

    def numbers(self, text: str, limit: int) -> list[int]:
        """The first `limit` numbers of the text, between begin and end, which count too."""
        return [self.BEGIN, *self._cut(normalized(text))[: limit - 2], self.END]

    def _cut(self, text: str) -> list[int]:
        """Viterbi: `best` is the score of the best way to each place, `steps` its last piece and where that begins."""
        best = [0.0] + [float("-inf")] * len(text)
        steps = [(0, self.UNKNOWN)] * len(best)
        for start in range(len(text)):
            score = best[start]
            if score + self._unknown > best[start + 1]:
                best[start + 1], steps[start + 1] = score + self._unknown, (start, self.UNKNOWN)
            for end in range(start + 1, min(start + self._longest, len(text)) + 1):
                number = self._numbers.get(text[start:end])
                if number is not None and score + self._scores[number] > best[end]:
                    best[end], steps[end] = score + self._scores[number], (start, number)
        return _backwards(steps)


def normalized(text: str) -> str:
    """Compatible forms made one, and each run of spaces a mark before the word."""
    words = unicodedata.normalize("NFKC", text).translate(_INVISIBLE).split()
    return "".join(_SPACE + word for word in words)


def _backwards(steps: Sequence[tuple[int, int]]) -> list[int]:
    place, found = len(steps) - 1, list[int]()
    while place:
        place, number = steps[place]
        found.append(number)
    return found[::-1]
