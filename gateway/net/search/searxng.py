"""SearXNG, a metasearch engine that the owner runs; its settings must list `json` in `search.formats`."""

from collections.abc import Iterator

from gateway.domain.json import Json
from gateway.net.search import Hit, SearchRequest, rows, text


def ask(query: str, _count: int, _key: str, base: str) -> SearchRequest:
    """The request."""
    return SearchRequest("GET", f"{base.rstrip('/')}/search", params={"q": query, "format": "json"})


def hits(answer: Json) -> Iterator[Hit]:
    """The results."""
    return (Hit(text(row, "title"), text(row, "url"), text(row, "content")) for row in rows(answer, "results"))
