"""The embedding models of providers, and the check of vectors before they are stored or compared."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_chain, wait_fixed

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
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                [vector] = await self._attempt([text])
        except TimeoutError:
            raise EmbeddingUnavailable(f"{self.model} gave no vector within {QUERY_SECONDS:g} seconds") from None
        except ModelError as error:
            raise self._unavailable(error) from error
        return vector

    async def passages(self, texts: Sequence[str], /) -> tuple[Vector, ...]:
        """The vectors of texts, in batches of 32, each retried for half a minute if that may help."""
        found: list[Vector] = []
        for start in range(0, len(texts), MAX_BATCH):
            found += await self._retried(texts[start : start + MAX_BATCH])
        return tuple(found)

    async def _retried(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        delays = self.retry_policy.delays
        try:
            return await AsyncRetrying(
                retry=retry_if_exception(lambda error: isinstance(error, ModelError) and error.repeatable),
                stop=stop_after_attempt(len(delays) + 1),
                wait=wait_chain(*map(wait_fixed, delays)),
                sleep=self.clock.sleep,
                reraise=True,
            )(self._attempt, texts)
        except ModelError as error:
            raise self._unavailable(error) from error

    async def _attempt(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Halve the longest text while the model refuses it as too long; the limit then holds for later texts, too."""
        while True:
            try:
                found = await self.embed(self.model, [_shortened(self.clean(text), self._longest) for text in texts])
            except ModelError as error:
                if error.kind is not ErrorKind.CONTEXT_LENGTH or self._longest <= _MIN_TOKENS:
                    raise
                self._longest //= 2
            else:
                vectors = check_vectors(self.model, found, len(texts), self.dimensions)
                self.dimensions = len(vectors[0])
                return vectors

    def _unavailable(self, error: ModelError) -> EmbeddingUnavailable:
        status = f"HTTP {error.status}: " if error.status else ""
        return EmbeddingUnavailable(f"{self.model} gave no vector: {status}{error.message}")


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
    if len(vector) != dimensions:
        raise EmbeddingUnavailable(f"{model} gave {len(vector):,} numbers instead of {dimensions:,}")
    if not 0 < dimensions <= MAX_DIMENSIONS:
        advice = f"choose a model with {MAX_DIMENSIONS:,} at most (models.embedding)"
        raise EmbeddingUnavailable(f"{model} gives vectors of {dimensions:,} numbers; {advice}")
    try:
        length = math.hypot(*vector)
    except TypeError:
        length = math.nan
    if not math.isfinite(length):
        raise EmbeddingUnavailable(f"{model} gave a vector with something in it that is no number")
    if not length:
        raise EmbeddingUnavailable(f"{model} gave a vector of nothing but zeros")
    return tuple(value / length for value in vector)
