"""multilingual-e5-small, run by onnxruntime; hatch_build.py makes its files. For a process of its own: it is heavy."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.domain.errors import OwnerMustAct
from gateway.llm.embedding.unigram import Unigram

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "local:multilingual-e5-small-q4"
DIMENSIONS = 384
QUERY, PASSAGE = "query: ", "passage: "
"""What the model was trained to find before a question, and before what answers it."""
MAX_TOKENS = 512
MAX_CHARACTERS = 8 * MAX_TOKENS
"""What lies beyond would hardly be seen: a token has four letters, seldom eight."""
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
    """Rows of four-bit weights, eight above their values, as numbers."""
    import numpy as np

    halves = blocks["weights"]
    weights = np.concatenate([halves & 15, halves >> 4], axis=-1).astype(np.float32) - 8
    rows: NDArray[np.float32] = (weights * blocks["scale"].astype(np.float32)[..., None]).reshape(len(blocks), -1)
    return rows
