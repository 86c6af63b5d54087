"""The OpenAI-compatible routes: models, chat completions, completions, responses and embeddings."""

import asyncio
import base64
import struct
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gateway.agent.tool_sources import parameters_of
from gateway.domain.json import Json
from gateway.domain.memory.memories import EmbeddingUnavailable, Vector
from gateway.domain.people.credentials import Scope
from gateway.domain.text.tokens import estimate
from gateway.domain.work.trees import MODELS
from gateway.web.auth.access import Caller, needs
from gateway.web.http.bodies import Text, json_body, parsed, validated
from gateway.web.http.errors import Refused
from gateway.web.site import AtSite, Site
from gateway.web.v1 import responses, wire
from gateway.web.v1.request import parse, parse_prompt
from gateway.web.v1.serving import Chatter, SessionHeaders, serve
from gateway.web.v1.wire import Completion, ResponseObject, TextCompletion

router = APIRouter()
Headers = Annotated[SessionHeaders, Depends()]


async def _names(site: Site, caller: Caller) -> Sequence[str]:
    """The agents that this caller may ask, the one that people chat with first; members have only that one."""
    if caller.member is not None:
        return MODELS
    agents = site.trees.agents
    return [*MODELS, *[agent.slug for agent in await agents.trusted()]]


@router.get("/v1/models")
async def models(site: AtSite, caller: Chatter) -> Response:
    """List the agents that can answer."""
    created = int(site.clock.now().timestamp())
    entries = [wire.model_entry(name, created) for name in await _names(site, caller)]
    return JSONResponse({"object": "list", "data": entries})


@router.get("/v1/models/{name}")
async def model(site: AtSite, caller: Chatter, name: str) -> Response:
    """Get one agent."""
    if name not in await _names(site, caller):
        raise Refused(404, "model_not_found", f"The model '{name}' does not exist.", param="model")
    return JSONResponse(wire.model_entry(name, int(site.clock.now().timestamp())))


@router.post("/v1/chat/completions", responses={404: {}, 424: {}})
async def complete(request: Request, site: AtSite, caller: Chatter, named: Headers) -> Response:
    """Answer the last user message, in one piece or as a stream. The turn continues when the client disconnects."""
    names, body = await _names(site, caller), await request.body()
    wanted = await parsed(body, lambda body: parse(body, names))
    shaped = partial(Completion, wanted.model, include_usage=wanted.include_usage)
    return await serve(site, caller, named, body, wanted, shaped)


@router.post("/v1/completions", responses={404: {}, 424: {}})
async def complete_text(request: Request, site: AtSite, caller: Chatter, named: Headers) -> Response:
    """Answer a prompt, in the older format of completions."""
    names, body = await _names(site, caller), await request.body()
    wanted = await parsed(body, lambda body: parse_prompt(body, names))
    return await serve(site, caller, named, body, wanted, partial(TextCompletion, wanted.model))


@router.post("/v1/responses", responses={404: {}, 424: {}})
async def respond(request: Request, site: AtSite, caller: Chatter, named: Headers) -> Response:
    """Answer in the format of the Responses API; continues from any response of the same token."""
    names, body = await _names(site, caller), await request.body()
    sent = await parsed(body, lambda body: responses.parse(body, names))
    before = await responses.earlier_until(site, caller, sent.previous) if sent.previous else ()
    wanted = sent.resolved(before, await responses.items_by_id(site, caller, sent.references))
    shaped = partial(ResponseObject, wanted.model, previous=sent.previous)
    return await serve(site, caller, named, body, wanted, shaped)


MAX_TEXTS, PART = 2_048, 128
"""Texts of a request, as at OpenAI, and those that are embedded at once."""
MAX_BODY, MAX_VALUES = 16 * 2**20, 2_000_000
CL100K = "litellm_core_utils/tokenizers/9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
"""The file of cl100k_base in litellm's package, named as tiktoken names it in its cache."""

Tokens = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1, max_length=8_192)]


def _several(value: object) -> object:
    single = isinstance(value, str) or (isinstance(value, list) and value and all(type(each) is int for each in value))
    return [value] if single else value


class Embed(BaseModel):
    """An embedding request of one text or several, or of lists of cl100k tokens.

    `model` is `default` or the embedder's name.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    input: Annotated[tuple[Text | Tokens, ...], BeforeValidator(_several), Field(min_length=1, max_length=MAX_TEXTS)]
    model: str = "default"
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


@router.post(
    "/v1/embeddings",
    dependencies=[Depends(needs(Scope.MEMORY, body=MAX_BODY))],
    responses={404: {}, 424: {}, 503: {}},
    openapi_extra=json_body(parameters_of(Embed)),
)
async def embed(request: Request, site: AtSite) -> Response:
    """Embed texts for a search; the vectors have unit length."""
    wanted = await parsed(await request.body(), partial(validated, Embed), most=MAX_VALUES)
    texts = await asyncio.to_thread(_texts, wanted.input)
    if not all(text.strip() for text in texts):
        raise Refused(400, "invalid_value", "input: an empty text has no embedding.", param="input")
    embedder = site.chat.embedder()
    if embedder is None:
        message = "No embedding model is configured; see `embeddings` in config.json."
        raise Refused(424, "no_embedder", message, type="server_error")
    if wanted.model not in {"default", embedder.name}:
        message = f"The model '{wanted.model}' does not exist; use default or {embedder.name}."
        raise Refused(404, "model_not_found", message, param="model")
    try:
        vectors = [each for at in range(0, len(texts), PART) for each in await embedder.passages(texts[at : at + PART])]
    except EmbeddingUnavailable as error:
        raise Refused(503, "no_embedding", str(error), headers={"Retry-After": "1"}) from error
    if vectors and wanted.dimensions not in {None, len(vectors[0])}:
        message = f"dimensions: {embedder.name} makes vectors of {len(vectors[0])}, no others."
        raise Refused(400, "invalid_value", message, param="dimensions")
    encode = _base64 if wanted.encoding_format == "base64" else list[Json]
    data: list[Json] = [
        {"object": "embedding", "index": index, "embedding": encode(vector)} for index, vector in enumerate(vectors)
    ]
    tokens = sum(map(estimate, texts))
    usage: Json = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JSONResponse({"object": "list", "data": data, "model": embedder.name, "usage": usage})


def _base64(vector: Vector) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _texts(inputs: Sequence[str | tuple[int, ...]]) -> list[str]:
    """The inputs as texts; raises `Refused` for numbers that are no tokens of cl100k_base."""
    vocabulary = {} if all(isinstance(each, str) for each in inputs) else _vocabulary()
    try:
        return [each if isinstance(each, str) else _decoded(each, vocabulary) for each in inputs]
    except KeyError as error:
        message = (
            f"input: {error} is not a token of cl100k_base; send texts (in LangChain check_embedding_ctx_length=False)."
        )
        raise Refused(400, "invalid_value", message, param="input") from None


def _decoded(tokens: Sequence[int], vocabulary: Mapping[int, bytes]) -> str:
    return b"".join(vocabulary[each] for each in tokens).decode("utf-8", "replace")


def _vocabulary() -> Mapping[int, bytes]:
    """The bytes of each token, read anew for each request, as few send tokens: 60 ms and 12 MB; empty if unreadable."""
    package = find_spec("litellm")
    place = Path((package.submodule_search_locations or [""])[0] if package else "", CL100K)
    try:
        lines = place.read_bytes().split()
    except OSError:
        return {}
    return {int(number): base64.b64decode(text) for text, number in zip(lines[::2], lines[1::2], strict=True)}
