"""What an embedding model gave, checked before anything is stored or compared by it."""

import math
from collections.abc import Sequence

from gateway.domain.embedding import EmbeddingUnavailable, Vector

MAX_DIMENSIONS = 4_000
"""The database indexes no longer ones (halfvec)."""


def checked(model: str, found: Sequence[Sequence[float]], count: int, dimensions: int | None) -> tuple[Vector, ...]:
    """The vectors, made one long; raises `EmbeddingUnavailable` if one is missing, of another length, or no number."""
    if len(found) != count:
        raise EmbeddingUnavailable(f"{model} gave {len(found)} vectors for {count} texts")
    return tuple(_checked(model, vector, dimensions or len(found[0])) for vector in found)


def _checked(model: str, vector: Sequence[float], dimensions: int) -> Vector:
    if len(vector) != dimensions:
        raise EmbeddingUnavailable(f"{model} gave {len(vector):,} numbers instead of {dimensions:,}")
    if not 0 < dimensions <= MAX_DIMENSIONS:
        told = f"vectors of {dimensions:,} numbers; choose a model with {MAX_DIMENSIONS:,} at most (models.embedding)"
        raise EmbeddingUnavailable(f"{model} gives {told}")
    try:
        length = math.hypot(*vector)
    except TypeError:
        length = math.nan
    if not math.isfinite(length):
        raise EmbeddingUnavailable(f"{model} gave a vector with something in it that is no number")
    if not length:
        raise EmbeddingUnavailable(f"{model} gave a vector of nothing but zeros")
    return tuple(value / length for value in vector)
