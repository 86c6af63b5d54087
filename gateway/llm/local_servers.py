"""Model servers on one's own machine: the models that they have, and how much context each holds.

They are asked by the standard library, in a thread: the HTTP library isn't imported before the process is ready."""

import asyncio
import os
import re
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import starmap
from json import dumps
from typing import Annotated, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    Field,
    OnErrorOmit,
    WrapValidator,
    model_validator,
)

from gateway.domain.conversation.model import Prompt
from gateway.domain.json import JsonObject
from gateway.llm.provider import if_sensible
from gateway.llm.vendors import ALIASES, Endpoint, split_model

T = TypeVar("T", bound=BaseModel)
F = TypeVar("F")

_MAX_RESPONSE_BYTES = 4_000_000
_ANSWER_S = 0.5
LOCAL_WINDOW = 8_192
"""Tokens of context of a local model whose server doesn't tell them."""
ANSWER_SHARE = 4
"""An answer may take one part in so many of a small context."""
LEAST_WINDOW = 4_096
MOST_WINDOW = 32_768
"""Asked for at most unless the owner sets more: the memory that context takes grows with it."""
_MEMORY_SHARE = 4
"""Context may take one part in so many of this machine's memory."""
_MODEL_SHARE = 0.7
_MOST_LOOKED_AT = 24
_UNFIT = re.compile(
    r"rerank|embed|bert|minilm|ocr|whisper|guard|tiny|(?<![a-z0-9])(?:bge|gte|e5|tts)(?![a-z0-9])"
    r"|(?<![\d.])(?:0?\.\d+b|\d{2,3}m)(?![a-z0-9])",
    re.IGNORECASE,
)
"""Names of models that hold no conversations, or have less than a billion parameters."""


_HEARING = re.compile(r"whisper|parakeet|transcri|speech.recognition", re.IGNORECASE)
"""Tasks of models that transcribe recordings, and names where the server tells no task."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model of a local server, in tokens: the `window` to use, and what is `loaded` now (None: not loaded).

    `vision`: None if the server doesn't say.
    """

    window: int
    loaded: int | None = None
    vision: bool | None = None


_Fact: TypeAlias = Annotated[F | None, WrapValidator(if_sensible)]


class _Show(BaseModel):
    model_info: dict[str, _Fact[int | list[int]]] = {}
    capabilities: _Fact[list[OnErrorOmit[str]]] = None

    def number(self, name: str) -> int:
        """A fact about the model whose name begins with its architecture, of all layers the greatest; 0 if unknown."""
        facts = (value for key, value in self.model_info.items() if key.partition(".")[2] == name)
        value = next(facts, None) or 0
        return max(value if isinstance(value, list) else (value, 0))

    @property
    def bytes_per_token(self) -> int:
        """Memory of one token's keys and values of 16 bits in all layers, as llama.cpp lays them out."""
        width = self.number("attention.key_length")
        heads = self.number("attention.head_count_kv") or self.number("attention.head_count")
        if not width and self.number("attention.head_count"):
            width = self.number("embedding_length") // self.number("attention.head_count")
        return 2 * 2 * self.number("block_count") * heads * width


_WINDOWS = ("loaded_context_length", "max_model_len", "max_context_length", "context_length", "context_window", "n_ctx")
_PATHS = ("default_generation_settings", "n_ctx"), ("meta", "n_ctx"), ("parameters", "max_seq_len")


class _Properties(BaseModel):
    """Facts that llama.cpp's server tells of itself, and others of each model."""

    window: _Fact[int] = Field(None, validation_alias=AliasChoices(*_WINDOWS, *starmap(AliasPath, _PATHS)))


class _Listed(_Properties):
    """A model as local servers list it, Ollama's running ones among them; LM Studio alone tells the state."""

    id: str = Field(validation_alias=AliasChoices("id", "name", "model"))
    type: _Fact[str] = None
    state: _Fact[str] = None
    task: _Fact[str] = None
    capabilities: _Fact[list[str] | dict[str, Any]] = None
    size: _Fact[int] = None
    remote_host: _Fact[str] = None
    details: _Fact[dict[str, Any]] = None


class _Listing(BaseModel):
    data: list[OnErrorOmit[_Listed]] = Field([], validation_alias=AliasChoices("data", "models"))

    @model_validator(mode="before")
    @classmethod
    def _of_list(cls, told: object) -> object:
        return {"data": told} if isinstance(told, list) else told


def more_context(model: str, window: int) -> str:
    """The remedy for a server that runs a model with less than this window."""
    prefix, name = split_model(model)
    here = f"load {name} with {window:,} tokens there, or set models.providers.{prefix}.context_window to what it has"
    if ALIASES.get(prefix, prefix) == "ollama":
        here = (
            f"run `ollama stop {name}`, and if that doesn't help, start Ollama with OLLAMA_CONTEXT_LENGTH={window}, or "
            "lower models.providers.ollama.context_window"
        )
    return f"the beginning of longer prompts is lost; {here}"


_LEAST_COUNT = 1_000
"""Some servers count only the tokens that they don't have from an earlier prompt."""
_LEAST_SHARE = 0.3
"""Of our estimate: tokenizers count from 0.34 of it (Arabic, of a large vocabulary) to 2.1."""
_GROWTH = 1_000
"""Estimated tokens, which every tokenizer counts as some."""


def cuts_prompts(endpoint: Endpoint, source: str, prompt: Prompt, sent: int, counted: int) -> bool:
    """Whether a server has read less than was `sent`, by our estimate.

    It counts far too little for the first prompt of its source, or, for one that goes on after the last one, no more.
    """
    before, sent_before, counted_before = endpoint.counts.get(source, ((), sent, 0))
    endpoint.counts[source] = prompt.messages, sent, counted
    if not before:
        return _LEAST_COUNT <= counted < _LEAST_SHARE * sent
    goes_on = prompt.messages[: len(before)] == before and sent - sent_before > _GROWTH
    return goes_on and max(counted_before / 2, _LEAST_COUNT) < counted <= counted_before


async def served_models(endpoint: Endpoint) -> tuple[str, ...]:
    """The models of a local server for conversations, with its prefix, best first; empty if it doesn't answer soon."""
    find = ollama_models if endpoint.is_ollama else _listed_models
    return tuple(f"{endpoint.vendor.prefix}/{name}" for name in await find(endpoint))


async def _listed_models(endpoint: Endpoint) -> tuple[str, ...]:
    """First those that can call tools, of these the loaded ones, in the server's order."""
    detailed, usual = await _listed(endpoint)
    talking = (each for each in detailed or usual if "embedding" not in (each.type or ""))
    fit = [each for each in talking if each.capabilities or not _UNFIT.search(each.id)]
    fit.sort(key=lambda each: ("tool_use" not in (each.capabilities or ()), each.state == "not-loaded"))
    return tuple(each.id for each in fit)


async def _listed(endpoint: Endpoint) -> tuple[list[_Listed], list[_Listed]]:
    """The models in LM Studio's list, and those in the usual one."""
    return await asyncio.gather(_listing(endpoint, "/api/v0/models"), _listing(endpoint, "/v1/models"))


async def _listing(endpoint: Endpoint, path: str, timeout: float = _ANSWER_S) -> list[_Listed]:
    found = await _ask(_Listing, endpoint, path, timeout=timeout)
    return found.data if found else []


async def served_transcribers(endpoint: Endpoint) -> tuple[str, ...]:
    """The models of a local server for recordings, with its prefix."""
    names = (each.id for each in await _listing(endpoint, "/v1/models") if _HEARING.search(each.task or each.id))
    return tuple(f"{endpoint.vendor.prefix}/{name}" for name in names)


async def ollama_models(endpoint: Endpoint, timeout: float = _ANSWER_S) -> tuple[str, ...]:
    """The models of an Ollama for conversations, best first; empty if nothing answers within `timeout` seconds.

    First come those that can call tools, of these the largest that this machine's memory holds. Models that run in
    Ollama's cloud are no local ones, and those that only embed or rank answer nobody.
    """
    tags = await _listing(endpoint, "/api/tags", timeout)
    listed = [tag for tag in tags if not (tag.remote_host or tag.id.endswith(("-cloud", ":cloud")))]
    shown = await asyncio.gather(*(_show(endpoint, tag.id) for tag in listed[:_MOST_LOOKED_AT]))
    room = _MODEL_SHARE * _memory() if endpoint.is_local else float("inf")
    ranked = [
        (not _has(show, "tools"), (size := tag.size or 0) > room, size if size > room else -size, place, tag.id)
        for place, (tag, show) in enumerate(zip(listed, shown, strict=False))
        if _answers(tag, show)
    ]
    return tuple(name for *_, name in sorted(ranked))


async def look_up(endpoint: Endpoint, model: str) -> LocalModel | None:
    """The model as its server describes it; None if it isn't local, or the server doesn't tell its context."""
    name = split_model(model)[1]
    if endpoint.is_ollama:
        return await ollama_model(endpoint, name)
    window = endpoint.window
    if window is None and endpoint.is_local:
        window = await served_window(endpoint, name)
    return LocalModel(window) if window else None


async def ollama_model(endpoint: Endpoint, name: str) -> LocalModel | None:
    """Look one model up; None if the server doesn't tell how long its context may be.

    Its window is the owner's, or as long as the model was made for, at most `MOST_WINDOW` and what a quarter of this
    machine's memory holds; a model that is loaded with more keeps it.
    """
    show, loaded = await asyncio.gather(_show(endpoint, name), loaded_context(endpoint, name))
    made_for = show.number("context_length") if show else 0
    if show is None or not made_for:
        return None
    room = _memory() // _MEMORY_SHARE // show.bytes_per_token if show.bytes_per_token else MOST_WINDOW
    window = endpoint.window or max(min(MOST_WINDOW, room), LEAST_WINDOW, loaded or 0)
    known = show.capabilities is not None
    return LocalModel(min(window, made_for), loaded, _has(show, "vision") if known else None)


async def served_window(endpoint: Endpoint, name: str) -> int | None:
    """The context of a model as LM Studio, vLLM or llama.cpp tell it, in tokens; None if nobody does."""
    listed, properties = await asyncio.gather(_listed(endpoint), _ask(_Properties, endpoint, "/props"))
    windows = [each.window or 0 for listing in listed for each in listing if each.id == name]
    windows.append((properties and properties.window) or 0)
    return next((window for window in windows if window > 0), None)


async def _show(endpoint: Endpoint, name: str) -> _Show | None:
    return await _ask(_Show, endpoint, "/api/show", {"model": name})


async def loaded_context(endpoint: Endpoint, name: str) -> int | None:
    """The context that a running model was loaded with; None if it isn't running."""
    running = await _listing(endpoint, "/api/ps")
    tagged = name if ":" in name else f"{name}:latest"
    lengths = (each.window or 0 for each in running if each.id.lower() == tagged.lower())
    return next((length for length in lengths if length > 0), None)


def _has(show: _Show | None, capability: str) -> bool:
    return show is not None and capability in (show.capabilities or ())


def _answers(tag: _Listed, show: _Show | None) -> bool:
    """Whether a model holds conversations; an old Ollama tells no capabilities, but names the family."""
    if show is not None and show.capabilities is not None:
        return "completion" in show.capabilities
    return "bert" not in str((tag.details or {}).get("family")) and not _UNFIT.search(tag.id)


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


async def _ask(
    kind: type[T], endpoint: Endpoint, path: str, body: JsonObject | None = None, timeout: float = _ANSWER_S
) -> T | None:
    """The parsed answer; None if there is none in time, or another one."""
    from http.client import HTTPException

    with suppress(OSError, ValueError, HTTPException):
        async with asyncio.timeout(timeout):
            return kind.model_validate_json(await asyncio.to_thread(_exchange, endpoint, path, body, timeout))
    return None


def _exchange(endpoint: Endpoint, path: str, body: JsonObject | None, timeout: float) -> bytes:
    from http.client import HTTPConnection, HTTPSConnection

    url, key = urlsplit(endpoint.root), "".join((endpoint.key or "none").split())
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    connect = HTTPSConnection if url.scheme == "https" else HTTPConnection
    with closing(connect(url.hostname or "", url.port, timeout=timeout)) as connection:
        connection.request("GET" if body is None else "POST", path, dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return answer.read(_MAX_RESPONSE_BYTES) if answer.status == 200 else b""
