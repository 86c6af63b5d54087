"""Brave Search API."""

from collections.abc import Iterator

from gateway.domain.json import Json
from gateway.net.search import Hit, SearchRequest, rows, text

BASE = "https://api.search.brave.com"


def ask(query: str, count: int, key: str, base: str = BASE) -> SearchRequest:
    """The request."""
    headers = {"X-Subscription-Token": key, "Accept": "application/json"}
    return SearchRequest(
        "GET", f"{base}/res/v1/web/search", headers, {"q": query, "count": str(count), "text_decorations": "0"}
    )


def hits(answer: Json) -> Iterator[Hit]:
    """The results."""
    return (
        Hit(text(row, "title"), text(row, "url"), text(row, "description")) for row in rows(answer, "web", "results")
    )
