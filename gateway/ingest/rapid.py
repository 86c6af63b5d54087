"""RapidOCR, whose models come with its wheel. They know no umlauts and few accents: a ü becomes a u."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

_SMALL = 1300
"""Below this long side a picture is doubled: the models drop the spaces between small letters."""
_SPACE = 0.28
"""Of the height of a line. The models are trained on Chinese and leave out many spaces."""
_SURE = 0.8
"""On average less upright: the picture lies on its side, or on its head."""

Corners: TypeAlias = Sequence[tuple[float, float]]
"""Of a box, clockwise from the upper left."""


class _Word(NamedTuple):
    left: float
    top: float
    bottom: float
    text: str
    upright: float
    """How sure it is, times its length; nothing for a line that goes up or down."""


class Rapid:
    """One thread, without its own guess at lines on their heads, which turns upright ones over."""

    def __init__(self) -> None:
        from rapidocr_onnxruntime import RapidOCR

        self._engine = RapidOCR(
            use_cls=False,
            intra_op_num_threads=1,
            inter_op_num_threads=1,
            max_side_len=2600,
            # Lines are found on a smaller picture than they are read on, and read one by one: a quarter less time.
            det_limit_type="max",
            det_limit_side_len=1280,
            rec_batch_num=1,
        )

    def read(self, image: "Image") -> str:
        """The text, line by line; a picture that makes no sense is turned round."""
        from PIL import Image

        if max(image.size) < _SMALL:
            image = image.resize((image.width * 2, image.height * 2), Image.Resampling.LANCZOS)
        words = self._words(image)
        if words and _upright(words) < _SURE * sum(len(word.text) for word in words):
            turned = (self._words(image.rotate(angle, expand=True)) for angle in (90, 180, 270))
            words = max([words, *turned], key=_upright)
        return "\n".join(_lines(words))

    def _words(self, image: "Image") -> list[_Word]:
        import numpy as np

        blue_first = np.asarray(image.convert("RGB"))[:, :, ::-1]
        found, _ = self._engine(blue_first, return_word_box=True)
        grey = np.asarray(image.convert("L"))
        return [
            _word(corners, grey, zip(letters, places, strict=True), float(sure))
            for corners, _, sure, places, letters, _ in found or ()
        ]


def _word(corners: Corners, grey: "NDArray[np.uint8]", letters: Iterable[tuple[str, Corners]], sure: float) -> _Word:
    across, down = zip(*corners, strict=True)
    left, right, top, bottom = min(across), max(across), min(down), max(down)
    gaps = [left + gap for gap in _gaps(grey[int(top) : int(bottom) + 1, int(left) : int(right) + 1])]
    text, last = "", left
    for letter, box in letters:
        place = (box[0][0] + box[1][0]) / 2
        text += " " if text and any(last < gap <= place for gap in gaps) else ""
        text, last = text + letter, place
    # The only sharp s the models know is the Greek letter.
    text = " ".join(text.replace("β", "ß").split())
    return _Word(left, top, bottom, text, sure * len(text) * (right - left > bottom - top))


def _gaps(line: "NDArray[np.uint8]") -> list[float]:
    """Where, from its left, a line has columns without ink, wide enough for a space."""
    import numpy as np

    dark = line < (int(line.min()) + int(line.max())) / 2
    if dark.mean() > 0.5:
        dark = ~dark
    ink = np.flatnonzero(dark.any(axis=0))
    wide = np.flatnonzero(np.diff(ink) > _SPACE * line.shape[0])
    return [float(ink[index] + ink[index + 1]) / 2 for index in wide]


def _upright(words: list[_Word]) -> float:
    return sum(word.upright for word in words)


def _lines(words: list[_Word]) -> list[str]:
    """Words side by side are one line."""
    lines: list[list[_Word]] = []
    for word in sorted(words, key=lambda word: word.top + word.bottom):
        middle = (word.top + word.bottom) / 2
        if lines and lines[-1][0].top < middle < lines[-1][0].bottom:
            lines[-1].append(word)
        else:
            lines.append([word])
    return [" ".join(word.text for word in sorted(line)) for line in lines]
