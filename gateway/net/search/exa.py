"""Exa's search API."""

from collections.abc import Iterator

from gateway.domain.json import Json, JsonObject
from gateway.net.search import Hit, SearchRequest, rows, text

BASE = "https://api.exa.ai"


def ask(query: str, count: int, key: str, base: str = BASE) -> SearchRequest:
    """The request."""
    wanted: JsonObject = {"query": query, "numResults": count, "contents": {"text": {"maxCharacters": 500}}}
    return SearchRequest("POST", f"{base}/search", {"x-api-key": key}, json=wanted)


def hits(answer: Json) -> Iterator[Hit]:
    """The results."""
    return (Hit(text(row, "title"), text(row, "url"), text(row, "text", "summary")) for row in rows(answer, "results"))
