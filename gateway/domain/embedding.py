"""What turns texts into vectors."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from gateway.domain.errors import TryAgainLater

Vector: TypeAlias = tuple[float, ...]
"""Of unit length: the product of two is their cosine."""


class EmbeddingUnavailable(TryAgainLater):
    """There is no vector now; the text says why, in one line. A search goes on by keyword."""


class Embedder(Protocol):
    """One embedding model. Questions and what they are asked of may be embedded differently."""

    @property
    def name(self) -> str:
        """What its vectors are stored under, such as `litellm:openai/text-embedding-3-small`.

        Vectors of different names are never compared.
        """

    @property
    def dimensions(self) -> int | None:
        """The length of its vectors; None until a model of a provider has given its first one."""

    async def query(self, text: str, /) -> Vector:
        """The vector of a question; a local model answers within 300 ms. Raises `EmbeddingUnavailable`."""

    async def passages(self, texts: Sequence[str], /) -> tuple[Vector, ...]:
        """The vectors of texts to be found, in their order. Raises `EmbeddingUnavailable`."""


class Embedders(Protocol):
    """Finds the embedding model of now."""

    def __call__(self, name: str | None = None, /) -> Embedder | None:
        """The configured model, or with the name of stored vectors the one that made them; None if there is none."""


def no_embedder(_name: str | None = None, /) -> None:
    """Of a place without embedding models."""
