import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from gateway.domain.conversation.model import Prompt, UserMessage
from gateway.domain.settings import CallParams
from gateway.llm.call import try_once
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import Provider, ProviderReply
from gateway.llm.providers.openai import build
from gateway.llm.vendors import Endpoint, vendor
from tests.fakes.endless_models import HELD, STREAMS, EndlessModels

ENDED = (
    "finish-then-words",
    "finish-then-comments",
    "done-then-words",
)
HEADS = (
    *("informational", "early-hints", "trailers", "status-line"),
    *("header-line", "header-name", "headers", "redirects", "redirect-body"),
)
REFUSED = ("error-400", "error-500", "error-gzip", "error-json")
SLOW = (
    *("comments", "newlines", "fields", "empty", "usage", "roles", "chunk-extension", "words-then"),
    *("letters", "thinking", "tiny", "gzip"),
)
"""Past no bound for long, or only past the one of time."""
HARD = [case for case in STREAMS if not case.startswith((*ENDED, *HEADS, *REFUSED, *SLOW, "brotli"))]


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with EndlessModels() as models:
        built = build(Endpoint(vendor("openai"), None, models.base_url))
        yield built
        await built.close()


async def ask(provider: Provider, case: str, silence: float = 20.0) -> ProviderReply:
    prompt, last = Prompt((UserMessage(f"endless:{case}"),)), None
    async with aclosing(try_once(provider, "openai/x", prompt, CallParams(), silence)) as events:
        async for event in events:
            last = event
    assert isinstance(last, ProviderReply)
    return last


async def failure(provider: Provider, case: str, silence: float = 20.0) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(provider, case, silence)
    return caught.value


@pytest.mark.parametrize("case", HARD)
async def test_an_answer_past_a_bound_is_a_failed_try_with_its_reason(
    provider: Provider, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.llm.protocol.chunks.MAX_CHARS", 2**17)
    error = await failure(provider, case)
    assert error.kind is ErrorKind.ENDLESS or error.status == 500, error.message
    assert "does not end" in error.message or "which was not asked for" in error.message
    assert len(error.message) < 200


async def test_a_compression_that_cannot_be_read_is_a_failure_of_the_connection(provider: Provider) -> None:
    error = await failure(provider, "brotli")
    assert error.kind is ErrorKind.NETWORK
    assert "the answer is compressed (br), which was not asked for" in error.message


@pytest.mark.parametrize("case", HEADS)
async def test_a_head_that_does_not_end_is_a_failure_of_the_connection(provider: Provider, case: str) -> None:
    error = await failure(provider, case)
    assert error.kind is ErrorKind.NETWORK
    assert len(error.message) < 500


@pytest.mark.parametrize(("case", "status"), [("400", 400), ("500", 500), ("gzip", 500)])
async def test_a_refusal_that_does_not_end_is_read_in_part(provider: Provider, case: str, status: int) -> None:
    error = await failure(provider, f"error-{case}")
    kind = ErrorKind.BAD_REQUEST if status == 400 else ErrorKind.SERVER
    assert (error.kind, error.status) == (kind, status)
    assert error.message.startswith("no no no")


@pytest.mark.parametrize("case", [*ENDED, "no-done"])
async def test_what_follows_the_end_of_an_answer_is_left(
    provider: Provider, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.llm.protocol.answer_reader._AFTER_FINISH_S", 0.2)
    reply = await ask(provider, case)
    assert reply.text.startswith("said ")
    assert len(reply.text) < 2**16


@pytest.mark.parametrize("case", ["comments", "newlines", "fields", "empty-objects", "roles", "usage"])
async def test_what_is_no_part_of_an_answer_does_not_count_as_progress(provider: Provider, case: str) -> None:
    error = await failure(provider, case, silence=0.1)
    assert (error.kind, error.message) == (ErrorKind.SILENCE, "nothing but keep-alives arrived for 0.25 s")


@pytest.mark.parametrize("case", ["chunk-extension", "loris-head", *sorted(HELD.keys() - {"no-done"})])
async def test_no_answer_at_all_is_silence(provider: Provider, case: str) -> None:
    assert (await failure(provider, case, silence=0.3)).kind is ErrorKind.SILENCE


async def test_an_answer_may_take_its_time_while_it_grows(provider: Provider) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await ask(provider, "loris-letters", silence=0.3)
