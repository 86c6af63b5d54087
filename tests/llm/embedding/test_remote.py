"""Embedding models of providers, against a real HTTP server."""

import json
import math
import sys
from collections.abc import AsyncIterator, Sequence
from importlib import import_module

import pytest

from gateway.domain.memory.memories import EmbeddingUnavailable
from gateway.llm.client import ModelClient
from gateway.llm.embedding import remote
from gateway.llm.embedding.remote import RemoteEmbedder
from tests.fakes.openai_server import FakeModels, Rule
from tests.llm.chain import FakeClock, client_for

MODEL = "openai/text-embedding-3-small"


@pytest.fixture
async def models() -> AsyncIterator[FakeModels]:
    async with FakeModels() as server:
        yield server


class Embedders:
    """Embedders over clients that are closed with the test."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.clock = FakeClock()
        self.clients: list[ModelClient] = []

    async def build(self, engine: str = "auto") -> RemoteEmbedder:
        self.clients.append(await client_for(self.address, MODEL, engine=engine))
        return RemoteEmbedder(MODEL, self.clients[-1].embed, self.clock, str)


@pytest.fixture
async def embedders(models: FakeModels) -> AsyncIterator[Embedders]:
    embedders = Embedders(models.base_url)
    yield embedders
    for client in embedders.clients:
        await client.close()
    if "litellm" in sys.modules:
        await import_module("litellm").close_litellm_async_clients()


def answer(*vectors: object) -> str:
    return json.dumps({"data": [{"index": place, "embedding": vector} for place, vector in enumerate(vectors)]})


@pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")
@pytest.mark.parametrize("engine", ["auto", "litellm"])
async def test_vectors_come_in_order_and_one_long(models: FakeModels, embedders: Embedders, engine: str) -> None:
    embedder = await embedders.build(engine)
    assert (embedder.name, embedder.dimensions) == (f"litellm:{MODEL}", None)
    [tea, stare] = await embedder.passages(["tea", "stare"])
    assert tea == pytest.approx([0.5, 0.5, 0.5, 0, 0, 0, 0, 0.5])
    assert await embedder.query("stare") == pytest.approx(stare)
    assert embedder.dimensions == 8
    assert models.asked[0].body["model"] == "text-embedding-3-small"


async def test_a_secret_is_not_sent(models: FakeModels, embedders: Embedders) -> None:
    built = await embedders.build()
    embedder = RemoteEmbedder(MODEL, built.embed, embedders.clock, clean=lambda text: text.replace("4711", "<key>"))
    await embedder.query("what is 4711?")
    await embedder.passages(["4711 is it"])
    assert [asked.body["input"] for asked in models.asked] == [["what is <key>?"], ["<key> is it"]]


async def test_many_texts_go_in_batches_and_a_long_one_is_cut(models: FakeModels, embedders: Embedders) -> None:
    embedder = await embedders.build()
    texts = [*(f"text {number}" for number in range(remote.MAX_BATCH)), "rain " * 20_000, "   "]
    assert len(await embedder.passages(texts)) == len(texts)
    [first, second] = [asked.body["input"] for asked in models.asked]
    assert (len(first), len(second)) == (remote.MAX_BATCH, 2)
    assert 20_000 < len(second[0]) < 60_000
    assert second[1] == "."


async def test_a_model_that_takes_less_gets_less_from_then_on(models: FakeModels, embedders: Embedders) -> None:
    models.rules = [Rule(match=r"(rain ){3000}", status=400, message="maximum context length is 2048 tokens")]
    embedder = await embedders.build()
    await embedder.query("rain " * 20_000)
    asked = models.count
    await embedder.query("rain " * 20_000)
    assert (asked, models.count) == (3, 4)


async def test_a_batch_is_tried_again_and_a_question_is_not(models: FakeModels, embedders: Embedders) -> None:
    models.rules = [Rule(status=503, times=2)]
    embedder, clock = await embedders.build(), embedders.clock
    assert len(await embedder.passages(["tea"])) == 1
    assert clock.slept == [5.0, 10.0]
    models.rules = [Rule(status=503, message="no sk-test-secret-1234")]
    with pytest.raises(
        EmbeddingUnavailable, match=r"^openai/text-embedding-3-small gave no vector: HTTP 503: no \*\*\*$"
    ):
        await embedder.query("tea")
    assert clock.slept == [5.0, 10.0]


async def test_who_asks_does_not_wait_for_ever(
    models: FakeModels, embedders: Embedders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "QUERY_SECONDS", 0.05)
    models.rules = [Rule(hang=True)]
    embedder = await embedders.build()
    with pytest.raises(EmbeddingUnavailable, match="no vector within"):
        await embedder.query("tea")


async def test_a_wrong_key_is_told_at_once(models: FakeModels, embedders: Embedders) -> None:
    models.rules = [Rule(status=401, code="invalid_api_key", message="bad key")]
    embedder, clock = await embedders.build(), embedders.clock
    with pytest.raises(EmbeddingUnavailable, match="HTTP 401: bad key"):
        await embedder.passages(["tea"])
    assert clock.slept == []


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (answer(), "gave 0 vectors for 1 texts"),
        (answer([1.0, 0.0], [1.0, 0.0]), "gave 2 vectors for 1 texts"),
        (answer([math.nan, 1.0]), "no number"),
        (answer([1.0, None]), "no number"),
        (answer(["1", "0"]), "no number"),
        (answer([0.0, 0.0]), "nothing but zeros"),
        (answer([]), "gives vectors of 0 numbers"),
        (answer([1.0] * 4001), "gives vectors of 4,001 numbers"),
        ("<html>Sign in</html>", "the server sent a web page, not an answer: Sign in"),
        (answer(None), "the server sent something unknown, not an answer: "),
    ],
)
async def test_a_broken_answer_is_told_in_a_line(models: FakeModels, embedders: Embedders, raw: str, told: str) -> None:
    models.rules = [Rule(raw=raw)]
    embedder = await embedders.build()
    with pytest.raises(EmbeddingUnavailable, match=told) as caught:
        await embedder.passages(["tea"])
    assert "\n" not in str(caught.value)
    assert embedder.dimensions is None


NO_NUMBER = "failed to encode response: json: unsupported value: NaN"  # ollama #9639


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Value error, batch size is invalid, it should not be larger than 10.: input.contents"),  # DashScope
        (413, "input batch size 32 > maximum allowed batch size 8"),  # SiliconFlow, TEI
        (422, "batch size 32 > maximum allowed batch size 8"),
        (400, "* BatchEmbedContentsRequest.requests: at most 10 requests can be in one batch"),  # Gemini
        (400, "invalid request: total number of texts must be at most 10 - received 32"),  # Cohere
        (400, "32 instance(s) is over the limit of 10 instances"),  # Vertex
        (413, "Failed to buffer the request body: length limit exceeded"),  # text-embeddings-inference #50
        (400, "The max allowed tokens per submitted batch is 120000. Your batch has 150000 tokens."),  # Voyage
        (400, "Requested 382520 tokens, max 300000 tokens per request"),  # OpenAI
        (400, "Too many tokens overall, split into more batches."),  # Mistral
    ],
)
async def test_texts_that_are_too_many_go_in_parts_and_whole(
    models: FakeModels, embedders: Embedders, status: int, message: str
) -> None:
    models.rules = [Rule(match=r"(.*\n){10}", status=status, message=message)]
    embedder, texts = await embedders.build(), [f"tea {'a' * place}" for place in range(32)]
    found = await embedder.passages(texts)
    sent = [len(asked.body["input"]) for asked in models.asked]
    assert sent == [32, 16, 8, 8, 16, 8, 8]
    models.rules = []
    assert found == await embedder.passages(texts)
    assert embedders.clock.slept == []


async def test_one_vector_for_several_texts_is_asked_for_each(models: FakeModels, embedders: Embedders) -> None:
    """As of gemini-embedding-2, and of proxies that embed the first text only (new-api #1500)."""
    models.rules = [Rule(match="\n", raw=answer([1.0, 0.0]))]
    tea, rain = await (await embedders.build()).passages(["tea", "rain"])
    assert tea != rain
    assert [asked.body["input"] for asked in models.asked] == [["tea", "rain"], ["tea"], ["rain"]]


@pytest.mark.parametrize(("status", "message"), [(500, NO_NUMBER), (400, "content management policy"), (400, "no")])
async def test_a_text_that_is_refused_is_named(
    models: FakeModels, embedders: Embedders, status: int, message: str
) -> None:
    models.rules = [Rule(match="rain", status=status, message=message)]
    embedder = await embedders.build()
    with pytest.raises(EmbeddingUnavailable, match=message) as caught:
        await embedder.passages(["tea", "rain", "stare"])
    assert (caught.value.refused, embedders.clock.slept) == ("rain", [])


async def test_a_short_text_that_is_too_long_cuts_no_other(models: FakeModels, embedders: Embedders) -> None:
    models.rules = [Rule(match="^odd$", status=413)]
    embedder = await embedders.build()
    with pytest.raises(EmbeddingUnavailable):
        await embedder.query("odd")
    await embedder.query("rain " * 3_000)
    assert models.asked[-1].body["input"] == [("rain " * 3_000).strip()]


async def test_a_model_that_changes_its_length_is_not_believed(models: FakeModels, embedders: Embedders) -> None:
    embedder = await embedders.build()
    await embedder.query("tea")
    models.rules = [Rule(raw=answer([1.0, 2.0]))]
    with pytest.raises(EmbeddingUnavailable, match="2 numbers instead of 8"):
        await embedder.query("tea")


async def test_what_no_api_ever_gave_is_no_vector() -> None:
    async def odd(_: str, texts: Sequence[str]) -> list[list[float]]:
        return [["base64"]] * len(texts)  # type: ignore[list-item]

    with pytest.raises(EmbeddingUnavailable, match="no number"):
        await RemoteEmbedder(MODEL, odd, FakeClock(), str).query("tea")
