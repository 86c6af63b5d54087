"""Embeddings in OpenAI's shape, by the configured embedder."""

import base64
import struct
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gateway.agent.tool_sources import parameters_of
from gateway.domain.embedding import EmbeddingUnavailable, Vector
from gateway.domain.json import Json
from gateway.domain.people.scopes import Scope
from gateway.domain.text.tokens import estimate
from gateway.web.auth.access import MESSAGE_BODY, needs
from gateway.web.http.bodies import parsed, validated
from gateway.web.http.errors import Refused
from gateway.web.http.fields import Text
from gateway.web.site import AtSite

MOST_TEXTS = 256

router = APIRouter()


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Embed(BaseModel):
    """An embedding request of one text or several; `model` is `default` or the embedder's name."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    input: Annotated[tuple[Text, ...], BeforeValidator(_several), Field(min_length=1, max_length=MOST_TEXTS)]
    model: str = "default"
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


_SHAPE = {"requestBody": {"required": True, "content": {"application/json": {"schema": parameters_of(Embed)}}}}


@router.post(
    "/v1/embeddings",
    dependencies=[Depends(needs(Scope.MEMORY, body=MESSAGE_BODY))],
    responses={404: {}, 424: {}, 503: {}},
    openapi_extra=_SHAPE,
)
async def embed(request: Request, site: AtSite) -> Response:
    """Vectors of texts to be found, of unit length."""
    asked = await parsed(await request.body(), lambda body: validated(Embed, body))
    if not all(text.strip() for text in asked.input):
        raise Refused(400, "invalid_value", "input: an empty text has no embedding.", param="input")
    embedder = site.backend.embedder()
    if embedder is None:
        message = "No embedding model is configured; see `embeddings` in config.json."
        raise Refused(424, "no_embedder", message, type="server_error")
    if asked.model not in {"default", embedder.name}:
        message = f"The model '{asked.model}' does not exist; use default or {embedder.name}."
        raise Refused(404, "model_not_found", message, param="model")
    try:
        vectors = await embedder.passages(asked.input)
    except EmbeddingUnavailable as error:
        raise Refused(503, "no_embedding", str(error), type="server_error", headers={"Retry-After": "1"}) from error
    if vectors and asked.dimensions not in {None, len(vectors[0])}:
        message = f"dimensions: {embedder.name} makes vectors of {len(vectors[0])}, no others."
        raise Refused(400, "invalid_value", message, param="dimensions")
    encode = _base64 if asked.encoding_format == "base64" else list[Json]
    data: list[Json] = [
        {"object": "embedding", "index": index, "embedding": encode(vector)} for index, vector in enumerate(vectors)
    ]
    tokens = sum(map(estimate, asked.input))
    usage: Json = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JSONResponse({"object": "list", "data": data, "model": embedder.name, "usage": usage})


def _base64(vector: Vector) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
