"""Models that misbehave; the process of the embedder imports this module and nothing of pytest."""

import os
import time
from pathlib import Path

from gateway.llm.embedding.e5 import DIMENSIONS, QUERY

Vectors = list[list[float]]


def _vectors(texts: list[str]) -> Vectors:
    return [[float(os.getpid()), *[0.0] * (DIMENSIONS - 1)] for _ in texts]


def gated(prefix: str, texts: list[str]) -> Vectors:
    """The first word is the folder of a gate: what begins is written down, and waits for `open`."""
    folder = Path(texts[0].split()[0])
    with (folder / "begun").open("a") as begun:
        begun.write(f"{prefix.strip()} {len(texts)}\n")
    while not (folder / "open").exists():
        time.sleep(0.005)
    return _vectors(texts)


def hangs_at_first(prefix: str, texts: list[str]) -> Vectors:
    """Over one question only, whose mark is its text."""
    mark = Path(texts[0])
    if prefix == QUERY and not mark.exists():
        mark.write_text(str(os.getpid()))
        time.sleep(600)
    return _vectors(texts)


def short(_: str, texts: list[str]) -> Vectors:
    return [[1.0, 2.0] for _ in texts]


def fewer(_: str, texts: list[str]) -> Vectors:
    return _vectors(texts[1:])


def words(_: str, texts: list[str]) -> list[str]:
    return texts


def fails(_: str, texts: list[str]) -> Vectors:
    raise ValueError(f"{len(texts)} too many")
