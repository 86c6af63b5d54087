"""Search without a key, by the package ddgs, which connects to search engines by itself."""

import asyncio

from gateway.net.errors import NetError
from gateway.net.search import Hit

_SECONDS = 8


async def find(query: str, count: int) -> list[Hit]:
    """Search in a thread, where a cancelled search runs on until its own timeout; raises `NetError`."""
    return await asyncio.to_thread(_find, query, count)


def _find(query: str, count: int) -> list[Hit]:
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    try:
        found = DDGS(timeout=_SECONDS).text(query, max_results=count)
    except DDGSException as error:
        if "no results" in str(error).lower():
            return []
        raise NetError("unreachable", f"the search engines don't respond ({type(error).__name__})") from error
    return [Hit(str(row.get("title")), str(row.get("href")), str(row.get("body"))) for row in found]
