"""Tavily's search API."""

from collections.abc import Iterator

from gateway.domain.json import Json
from gateway.net.search import Hit, SearchRequest, rows, text

BASE = "https://api.tavily.com"


def ask(query: str, count: int, key: str, base: str = BASE) -> SearchRequest:
    """The request."""
    headers = {"Authorization": f"Bearer {key}"}
    return SearchRequest("POST", f"{base}/search", headers, json={"query": query, "max_results": count})


def hits(answer: Json) -> Iterator[Hit]:
    """The results."""
    return (Hit(text(row, "title"), text(row, "url"), text(row, "content")) for row in rows(answer, "results"))
