"""multilingual-e5-small, run by onnxruntime; hatch_build.py makes its files. For a process of its own: it is heavy."""

import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.domain.errors import OwnerMustAct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


NAME = "local:multilingual-e5-small-q4"
DIMENSIONS = 384
QUERY, PASSAGE = "query: ", "passage: "
"""The prefixes of the model's training, for questions and for texts that answer them."""
MAX_TOKENS = 512
MAX_CHARACTERS = 8 * MAX_TOKENS
"""The model would hardly read more: a token has four letters, rarely eight."""
_FOLDER = Path(__file__).with_name("e5_small")


def vectors(prefix: str, texts: Sequence[str], folder: str = str(_FOLDER)) -> list[list[float]]:
    """The vectors of the texts, of unit length; the first call loads the model (0.5 CPU s)."""
    model = _loaded(Path(folder))
    return [model.vector(prefix + text) for text in texts]


@cache
def _loaded(folder: Path) -> "E5":
    return E5(folder)


class E5:
    """The model in memory: 130 MB, of which 30 are the encoder; the word vectors stay on the disk."""

    def __init__(self, folder: Path) -> None:
        import numpy as np
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            pieces = (folder / "pieces.txt").read_text(encoding="utf-8").split("\n")
            scores = np.fromfile(folder / "scores.f4", "<f4").tolist()
            block = np.dtype([("scale", "<f2"), ("weights", "u1", (16,))])
            self._words = np.memmap(folder / "words.q4", block, "r").reshape(-1, DIMENSIONS // 32)
            self._encoder = InferenceSession(folder / "encoder.onnx", options, providers=["CPUExecutionProvider"])
        except FileNotFoundError as exc:
            raise OwnerMustAct(
                f"the embedding model is not installed ({exc.filename}); install SupaClaw again"
            ) from exc
        self._unigram = Unigram(pieces, scores)

    def vector(self, text: str) -> list[float]:
        """The vector of one text, of its first 512 tokens."""
        numbers = self._unigram.numbers(text[:MAX_CHARACTERS], MAX_TOKENS)
        [vector] = self._encoder.run(None, {"words": _unpacked(self._words[numbers])})
        return [float(value) for value in vector]


def _unpacked(blocks: "NDArray[np.void]") -> "NDArray[np.float32]":
    """Rows of four-bit weights, stored eight above their values, as numbers."""
    import numpy as np

    halves = blocks["weights"]
    weights = np.concatenate([halves & 15, halves >> 4], axis=-1).astype(np.float32) - 8
    rows: NDArray[np.float32] = (weights * blocks["scale"].astype(np.float32)[..., None]).reshape(len(blocks), -1)
    return rows


_SPACE = "\u2581"
_INVISIBLE = str.maketrans({chr(code): " " for code in (0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0xFEFF, 0xFFFD)})
_FAR_BELOW = 10.0


class Unigram:
    """Pieces by their numbers. The first four are markers, which no text contains: begin, padding, end, unknown."""

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
        """Viterbi: `best` is the best score up to a place, `steps` the last piece on the way and its beginning."""
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
    """The text in NFKC, with each run of spaces replaced by a mark before the next word."""
    return "".join(_SPACE + word for word in unicodedata.normalize("NFKC", text).translate(_INVISIBLE).split())


def _backwards(steps: Sequence[tuple[int, int]]) -> list[int]:
    place, found = len(steps) - 1, list[int]()
    while place:
        place, number = steps[place]
        found.append(number)
    return found[::-1]
