"""`models.primary: "auto"`: the first provider with a key, else a local Ollama, else the built-in guide."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import BaseModel

from gateway.domain.settings import ProviderSettings
from gateway.llm.vendors import VENDORS, Vendor, default_model, endpoint_of, is_enabled

GUIDE = "guide/built-in"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model chosen, and the reason, worded for the owner."""

    model: str
    reason: str


def connected_models(environ: Mapping[str, str], providers: Mapping[str, ProviderSettings]) -> Iterator[ModelChoice]:
    """Yield the default model of each provider that has a key, in catalogue order, or an address of its own."""
    for entry in VENDORS:
        model = default_model(entry.prefix, providers)
        if model and is_enabled(model, providers) and (where := _key_place(entry, environ, providers)):
            yield ModelChoice(model, f"auto: a key for {entry.title} is in {where}")
    for prefix, settings in providers.items():
        model = default_model(prefix, providers)
        if model and settings.enabled and settings.default_model and settings.base_url:
            yield ModelChoice(model, f"auto: config.json has models.providers.{prefix}.default_model and its base_url")


def choose_model(
    environ: Mapping[str, str], providers: Mapping[str, ProviderSettings], ollama_models: Sequence[str]
) -> ModelChoice:
    """Choose the first connected one, else from `ollama_models`, the models a local Ollama offers."""
    if (first := next(connected_models(environ, providers), None)) is not None:
        return first
    chat_models = [name for name in ollama_models if "embed" not in name]
    if chat_models:
        return ModelChoice(
            f"ollama/{chat_models[0]}", "auto: no provider key was found, but a local Ollama has this model"
        )
    return ModelChoice(GUIDE, "auto: no provider key was found and no local Ollama answers")


def _key_place(entry: Vendor, environ: Mapping[str, str], providers: Mapping[str, ProviderSettings]) -> str | None:
    if endpoint_of(entry.prefix, providers, {}).key:
        return f"config.json (models.providers.{entry.prefix}.api_key)"
    return next((f"the environment ({name})" for name in entry.keys if environ.get(name)), None)


_MAX_RESPONSE_BYTES = 1_000_000


class _OllamaModel(BaseModel):
    name: str


class _OllamaTags(BaseModel):
    models: list[_OllamaModel] = []


async def ollama_models(base_url: str, timeout: float = 0.3) -> tuple[str, ...]:
    """The model names, newest first; empty if nothing answers within `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            return _model_names(await _get(base_url, "/api/tags"))
    except (OSError, ValueError):
        return ()


async def _get(base_url: str, path: str) -> bytes:
    url = urlsplit(base_url)
    secure = url.scheme == "https"
    reader, writer = await asyncio.open_connection(
        url.hostname, url.port or (443 if secure else 80), ssl=secure or None
    )
    with closing(writer):
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {url.netloc}\r\n\r\n".encode())
        return await reader.read(_MAX_RESPONSE_BYTES)


def _model_names(answer: bytes) -> tuple[str, ...]:
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
        return ()
    return tuple(model.name for model in _OllamaTags.model_validate_json(body).models)
