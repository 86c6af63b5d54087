"""Which embedding models may be asked, by what is configured."""

from typing import cast

import pytest

from gateway.app.live_config import Embedders, LiveConfig
from gateway.config.machine import SystemClock
from gateway.config.model import Config
from gateway.llm.client import ModelClient

OTHER = "litellm:openai/other"


@pytest.fixture
async def local() -> str:
    configured = embedders("local").embedder()
    assert configured is not None
    return configured.name


def embedders(embedding: str) -> Embedders:
    config = Config.model_validate({"models": {"embedding": embedding}})
    return Embedders(LiveConfig(config, cast("ModelClient", None)), SystemClock())


async def test_vectors_of_a_model_before_are_compared_with_a_question_to_that_model(local: str) -> None:
    remote = embedders("litellm:openai/one")
    names = [found.name if (found := remote.embedder(name)) else None for name in (None, local, OTHER)]
    assert names == ["litellm:openai/one", local, OTHER]
    assert remote.embedder(OTHER) is remote.embedder(OTHER), "what it learned of its model is kept"


async def test_no_question_leaves_the_machine_once_the_model_is_local(local: str) -> None:
    names = [found.name if (found := embedders("local").embedder(name)) else None for name in (None, local, OTHER)]
    assert names == [local, local, None]


async def test_without_a_model_none_is_asked(local: str) -> None:
    assert [embedders("none").embedder(name) for name in (None, local, OTHER)] == [None] * 3
