"""The embedding models of providers, and the check of vectors before they are stored or compared."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.domain.errors import raising
from gateway.domain.memory.memories import EmbeddingUnavailable, Vector
from gateway.domain.text.tokens import estimate
from gateway.domain.time import Clock
from gateway.llm.call import USUAL_POLICY, RetryPolicy
from gateway.llm.errors import ErrorKind, ModelError

Embed: TypeAlias = Callable[[str, Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""The raw vectors of texts by a model, as `ModelClient.embed` gives them."""

MAX_BATCH = 32
QUERY_SECONDS = 5.0
_MAX_TOKENS, _MIN_TOKENS = 8_000, 250
"""Of one text: most models take 8,191; some refuse more than 512 instead of ignoring the rest."""


@dataclass
class RemoteEmbedder:
    """One model of a provider. A query is sent once, a batch of passages is retried."""

    model: str
    embed: Embed
    clock: Clock
    clean: Callable[[str], str]
    """Removes live secrets from the texts that are sent."""
    retry_policy: RetryPolicy = USUAL_POLICY
    dimensions: int | None = field(default=None, init=False)
    """Those of its first answer; None before."""
    _longest: int = field(default=_MAX_TOKENS, init=False)

    @property
    def name(self) -> str:
        """`litellm:` and the model."""
        return f"litellm:{self.model}"

    async def query(self, text: str, /) -> Vector:
        """The vector of a query; tried once, for 5 s. Raises `EmbeddingUnavailable`."""
        late = EmbeddingUnavailable(f"{self.model} gave no vector within {QUERY_SECONDS:g} seconds")
        with raising(late, TimeoutError):
            async with asyncio.timeout(QUERY_SECONDS):
                [vector] = await self._attempt([text])
        return vector

    async def passages(self, texts: Sequence[str], /) -> tuple[Vector, ...]:
        """The vectors of texts, in batches of 32, each retried for half a minute if that may help."""
        found: list[Vector] = []
        for start in range(0, len(texts), MAX_BATCH):
            found += await self._apart(texts[start : start + MAX_BATCH])
        return tuple(found)

    async def _apart(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """The vectors of texts, those of each half apart if the model refuses them together."""
        middle = len(texts) // 2
        for delay in (*self.retry_policy.delays, None):
            try:
                return await self._attempt(texts)
            except EmbeddingUnavailable as error:
                cause = error.__cause__ if isinstance(error.__cause__, ModelError) else None
                # some servers fail at a text whose vector isn't numeric
                of_texts = cause is None or not cause.temporary or "NaN" in cause.words
                if middle and of_texts:
                    break
                if cause is None or of_texts or delay is None or not cause.repeatable:
                    error.refused = texts[0] if of_texts else ""
                    raise
                await self.clock.sleep(delay)
        return (*await self._apart(texts[:middle]), *await self._apart(texts[middle:]))

    async def _attempt(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Halve a single text while the model refuses it as too long; the limit then holds for later texts, too."""
        while True:
            sent = [_shortened(self.clean(text), self._longest) for text in texts]
            try:
                found = await self.embed(self.model, sent)
            except ModelError as error:
                length = estimate(sent[0])
                if error.kind is not ErrorKind.CONTEXT_LENGTH or len(sent) > 1 or length <= _MIN_TOKENS:
                    status = f"HTTP {error.status}: " if error.status else ""
                    raise EmbeddingUnavailable(f"{self.model} gave no vector: {status}{error.message}") from error
                self._longest = length // 2
            else:
                vectors = check_vectors(self.model, found, len(texts), self.dimensions)
                self.dimensions = len(vectors[0])
                return vectors


def _shortened(text: str, tokens: int) -> str:
    """The beginning of the text, about so many tokens; never empty, which some servers refuse."""
    counted = estimate(text)
    return (text if counted <= tokens else text[: len(text) * tokens // counted]).strip() or "."


MAX_DIMENSIONS = 4_000
"""The database can't index longer ones (halfvec)."""


def check_vectors(
    model: str, found: Sequence[Sequence[float]], count: int, dimensions: int | None
) -> tuple[Vector, ...]:
    """The vectors, scaled to length 1; raises `EmbeddingUnavailable` if one is missing, misshapen or not numeric."""
    if len(found) != count:
        raise EmbeddingUnavailable(f"{model} gave {len(found)} vectors for {count} texts")
    return tuple(_check_vector(model, vector, dimensions or len(found[0])) for vector in found)


def _check_vector(model: str, vector: Sequence[float], dimensions: int) -> Vector:
    try:
        length = math.hypot(*vector)
    except TypeError:
        length = math.nan
    if not math.isfinite(length):
        raise EmbeddingUnavailable(f"{model} gave a vector with something in it that is no number")
    if len(vector) != dimensions:
        raise EmbeddingUnavailable(f"{model} gave {len(vector):,} numbers instead of {dimensions:,}")
    if not 0 < dimensions <= MAX_DIMENSIONS:
        advice = f"choose a model with {MAX_DIMENSIONS:,} at most (models.embedding)"
        raise EmbeddingUnavailable(f"{model} gives vectors of {dimensions:,} numbers; {advice}")
    if not length:
        raise EmbeddingUnavailable(f"{model} gave a vector of nothing but zeros")
    return tuple(value / length for value in vector)
