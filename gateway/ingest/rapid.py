"""RapidOCR, whose models come with its wheel; nothing is fetched."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from PIL.Image import Image

_SURE = 0.8
"""On average less upright: the picture lies on its side, or on its head."""

Corners: TypeAlias = Sequence[tuple[float, float]]
"""Of a box, clockwise from the upper left."""


class _Words(NamedTuple):
    left: float
    top: float
    bottom: float
    text: str
    upright: float
    """How sure it is, times its length; nothing for a line that goes up or down."""


class Rapid:
    """One thread, without its own guess at lines on their heads, which turns upright ones over."""

    def __init__(self) -> None:
        import rapidocr

        # Its runtime would tell its maker that it was used.
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        # A model that is named is not downloaded.
        models = Path(rapidocr.__file__).parent / "models"
        self._engine = rapidocr.RapidOCR(
            params={
                "Global.log_level": "error",
                "Global.use_cls": False,
                "Global.max_side_len": 2600,
                "EngineConfig.onnxruntime.intra_op_num_threads": 1,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                "Det.model_path": str(models / "PP-OCRv6_det_small.onnx"),
                "Rec.model_path": str(models / "PP-OCRv6_rec_small.onnx"),
                # Lines are found on a smaller picture than they are read on, and read one by one: a quarter less time.
                "Det.limit_type": "max",
                "Det.limit_side_len": 1280,
                "Rec.rec_batch_num": 1,
            }
        )

    def read(self, image: "Image") -> str:
        """The text, line by line; a picture that makes no sense is turned round."""
        words = self._words(image)
        if words and _upright(words) < _SURE * sum(len(each.text) for each in words):
            turned = (self._words(image.rotate(angle, expand=True)) for angle in (90, 180, 270))
            words = max([words, *turned], key=_upright)
        return "\n".join(_lines(words))

    def _words(self, image: "Image") -> list[_Words]:
        import numpy as np
        from rapidocr.utils.output import RapidOCROutput

        blue_first = np.asarray(image.convert("RGB"))[:, :, ::-1]
        found = self._engine(blue_first)
        if not isinstance(found, RapidOCROutput) or found.boxes is None or not found.txts or not found.scores:
            return []
        return [_at(*each) for each in zip(found.boxes.tolist(), found.txts, found.scores, strict=True)]


def _at(corners: Corners, text: str, sure: float) -> _Words:
    across, down = zip(*corners, strict=True)
    left, right, top, bottom = min(across), max(across), min(down), max(down)
    return _Words(left, top, bottom, text, sure * len(text) * (right - left > bottom - top))


def _upright(words: list[_Words]) -> float:
    return sum(each.upright for each in words)


def _lines(words: list[_Words]) -> list[str]:
    lines: list[list[_Words]] = []
    for each in sorted(words, key=lambda each: each.top + each.bottom):
        middle = (each.top + each.bottom) / 2
        if lines and lines[-1][0].top < middle < lines[-1][0].bottom:
            lines[-1].append(each)
        else:
            lines.append([each])
    return [" ".join(each.text for each in sorted(line)) for line in lines]
