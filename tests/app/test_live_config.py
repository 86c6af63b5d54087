"""An edited configuration: the models that answer, and which embedding models may be asked."""

from asyncio import StreamReader, StreamWriter, start_server
from typing import cast

import pytest

from gateway.app.live_config import Embedders, LiveConfig
from gateway.config.machine import SystemClock
from gateway.config.model import Config
from gateway.llm.client import ModelClient, build_client

OTHER = "litellm:openai/other"


@pytest.fixture
async def local() -> str:
    configured = embedders("local").embedder()
    assert configured is not None
    return configured.name


def embedders(embedding: str) -> Embedders:
    config = Config.model_validate({"models": {"embedding": embedding}})
    return Embedders(LiveConfig(config, cast("ModelClient", None)), SystemClock(), str)


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


async def test_the_models_in_use_stay_until_the_edited_ones_are_built() -> None:
    used: list[ModelClient] = []

    async def ollama(_reader: StreamReader, writer: StreamWriter) -> None:
        used.append(current.model)
        writer.close()

    async with await start_server(ollama, "127.0.0.1", 0) as asked_while_building:
        address = f"http://127.0.0.1:{asked_while_building.sockets[0].getsockname()[1]}/v1"
        edited = Config.model_validate({"models": {"providers": {"ollama": {"base_url": address}}}})
        config = Config.model_validate({"models": {"primary": "openai/gpt-4o"}})
        first = await build_client(config.models, {}, SystemClock())
        current = LiveConfig(config, first)

        replaced = await current.apply(edited)

    assert used == [first]
    assert replaced is first is not current.model
    assert current.config is edited


async def test_models_that_were_not_edited_stay() -> None:
    config = Config.model_validate({"models": {"primary": "openai/gpt-4o"}})
    current = LiveConfig(config, await build_client(config.models, {}, SystemClock()))

    assert await current.apply(config.model_copy(update={"budgets": config.budgets})) is None
