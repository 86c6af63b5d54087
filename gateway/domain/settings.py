"""The `models` section of config.json."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from gateway.domain.urls import HttpUrl


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Params(_Settings):
    """Sampling parameters; null: not sent, the provider decides."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        0.7, description="Sampling temperature, 0 to 2; null: the provider's default."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(
        1.0, description="Nucleus sampling (top-p), above 0, up to 1; null: the provider's default."
    )
    max_output_tokens: int = Field(4096, ge=1, description="The maximum length of an answer, in tokens.")


class ProviderSettings(_Settings):
    """How to reach one provider; defaults come from the environment and the provider's usual address."""

    api_key: SecretStr | None = Field(
        None, description="The provider's key; null reads its usual environment variable."
    )
    base_url: HttpUrl | None = Field(None, description="Where the provider's API is; null means its public address.")


class ModelSettings(_Settings):
    """Which models answer, in which order, and how to reach them."""

    primary: str = Field("auto", min_length=1, description='`provider/model`, or "auto" to take what is connected.')
    fallbacks: tuple[str, ...] = Field((), description="Models to try, in order, when the primary fails.")
    params: Params = Field(default_factory=Params, description="Sampling parameters, sent to every model.")
    providers: Mapping[str, ProviderSettings] = Field(
        default_factory=dict, description="Keys and addresses by model prefix, such as `openai` or `ollama`."
    )
    engine: Literal["auto", "litellm"] = Field(
        "auto", description='"litellm" sends every call through litellm; "auto" only those that need it.'
    )
    embedding: str = Field(
        "local",
        description='The embedding model for search by meaning: "local", "litellm:<provider>/<model>", or "none".',
    )
    summary: str | None = Field(
        None,
        description="The model that writes summaries; null means the primary for conversations that go on, "
        "a cheap one of its provider for those that have ended.",
    )
    transcription: str | None = Field(
        None, description="The model that transcribes audio, such as `openai/whisper-1`; null: none."
    )

    @field_validator("embedding")
    @classmethod
    def _is_embedder(cls, embedding: str) -> str:
        if not re.fullmatch(r"local|none|(litellm:)?[^/:\s]+/\S+", embedding):
            raise ValueError(
                'use "local", "none" or a provider\'s model, such as "litellm:openai/text-embedding-3-small"'
            )
        return embedding
