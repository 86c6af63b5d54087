"""Web search: asks the configured providers in turn until one has results. Each provider is one file here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gateway.domain.json import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Hit:
    """One result; all its text is untrusted."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A request to a provider's API."""

    method: Literal["GET", "POST"]
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] | None = None
    json: JsonObject | None = None


def rows(answer: Json, *path: str) -> Iterable[JsonObject]:
    """The objects of the list at this path, if there is one."""
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    return (row for row in answer if isinstance(row, dict)) if isinstance(answer, list) else ()


def text(row: JsonObject, *names: str) -> str:
    """The first of these fields with a text that isn't blank; else ""."""
    return next((value for name in names if isinstance(value := row.get(name), str) and value.strip()), "")
