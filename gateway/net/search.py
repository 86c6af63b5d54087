"""Web search: asks the configured providers in turn, in a fixed order, until one has results."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pydantic import JsonValue, SecretStr

from gateway.config.model import WebSearch
from gateway.domain.errors import raising
from gateway.domain.json import JsonObject, KeyPath, value_at
from gateway.domain.text.texts import one_line
from gateway.net.addresses import Rules, parse_url
from gateway.net.errors import NetError
from gateway.net.fetch import load_client

MAX_TITLE, MAX_SNIPPET, MAX_LINK = 150, 300, 500
_SECONDS, _BYTES = 12.0, 2 * 2**20
_KEYLESS_SECONDS = 8


@dataclass(frozen=True, slots=True)
class Hit:
    """One result; all its text is untrusted."""

    title: str
    url: str
    snippet: str


class SearchResults(NamedTuple):
    """The results of one provider."""

    provider: str
    hits: Sequence[Hit]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A request to a provider's API."""

    method: Literal["GET", "POST"]
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] | None = None
    json: JsonObject | None = None


class SearchApi(NamedTuple):
    """A provider with an HTTP API: its address, the request by address, key, query and count, and its results.

    `results` is the path to their list, `snippets` are the fields that may hold what a result says.
    """

    base: str
    request: Callable[[str, str, str, int], SearchRequest]
    results: KeyPath
    snippets: Sequence[str]

    def hits(self, answer: JsonValue) -> Iterator[Hit]:
        """The results, if the answer has the form."""
        found = value_at(answer, self.results)
        rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
        return (Hit(_text(row, "title"), _text(row, "url"), _text(row, *self.snippets)) for row in rows)


def _brave(base: str, key: str, query: str, count: int) -> SearchRequest:
    headers = {"X-Subscription-Token": key, "Accept": "application/json"}
    wanted = {"q": query, "count": str(count), "text_decorations": "0"}
    return SearchRequest("GET", f"{base}/res/v1/web/search", headers, wanted)


def _tavily(base: str, key: str, query: str, count: int) -> SearchRequest:
    headers = {"Authorization": f"Bearer {key}"}
    return SearchRequest("POST", f"{base}/search", headers, json={"query": query, "max_results": count})


def _exa(base: str, key: str, query: str, count: int) -> SearchRequest:
    wanted: JsonObject = {"query": query, "numResults": count, "contents": {"text": {"maxCharacters": 500}}}
    return SearchRequest("POST", f"{base}/search", {"x-api-key": key}, json=wanted)


def _searxng(base: str, _key: str, query: str, _count: int) -> SearchRequest:
    return SearchRequest("GET", f"{base.rstrip('/')}/search", params={"q": query, "format": "json"})


_APIS = {
    "brave": SearchApi("https://api.search.brave.com", _brave, ("web", "results"), ("description",)),
    "tavily": SearchApi("https://api.tavily.com", _tavily, ("results",), ("content",)),
    "exa": SearchApi("https://api.exa.ai", _exa, ("results",), ("text", "summary")),
    "searxng": SearchApi("", _searxng, ("results",), ("content",)),
}
"""SearXNG is a metasearch engine that the owner runs; its settings must list `json` in `search.formats`."""


@dataclass(frozen=True, slots=True)
class WebSearcher:
    """Searches as configured; `settings` and `rules` are read at each search."""

    settings: Callable[[], WebSearch]
    rules: Callable[[], Rules]
    bases: Mapping[str, str] = field(default_factory=dict)
    """Addresses of the APIs that differ from the usual ones."""

    async def find(self, query: str, count: int) -> SearchResults:
        """The results of the first provider that has any; raises `NetError`, which names each failure, if all fail."""
        failed, empty = [], ""
        for name in self.providers:
            try:
                found = await self._ask(name, query, count)
            except NetError as error:
                failed.append(f"{name}: {error}")
                continue
            if hits := _clamped(found, count):
                return SearchResults(name, hits)
            empty = empty or name
        if empty:
            return SearchResults(empty, ())
        raise NetError("search_failed", "; ".join(failed) or "No search provider is configured.")

    @property
    def providers(self) -> list[str]:
        """The providers to ask, in order."""
        named = self.settings().provider
        return [*filter(self._access, _APIS), "ddgs"] if named == "auto" else [named]

    def _access(self, name: str) -> str:
        """The setting that a provider needs: the address of a SearXNG, the key of another; "" if it is not set."""
        found: SecretStr | str | None = getattr(self.settings(), _setting(name))
        return found.get_secret_value() if isinstance(found, SecretStr) else found or ""

    async def _ask(self, name: str, query: str, count: int) -> Iterable[Hit]:
        if name == "ddgs":
            return await asyncio.to_thread(find_keyless, query, count)
        api, access = _APIS[name], self._access(name)
        if not access:
            raise NetError("not_configured", f"tools.web.search.{_setting(name)} is not set.")
        base = self.bases.get(name, api.base) or access
        return api.hits(await self._answer(api.request(base, access, query, count), _setting(name)))

    async def _answer(self, request: SearchRequest, setting: str) -> JsonValue:
        client, host = await asyncio.to_thread(load_client), parse_url(request.url).host
        with client.translated_errors(host):
            async with client.guarded(self.rules, client.Limits(_BYTES, _SECONDS), request.headers) as http:
                answer = await http.request(request.method, request.url, params=request.params, json=request.json)
        if answer.status_code != 200:
            advice = f"; check tools.web.search.{setting}" if answer.status_code in (401, 403) else ""
            raise NetError("refused", f"{host} answered {answer.status_code}{advice}.")
        message = f"{host} did not answer with JSON; check tools.web.search.{setting}."
        with raising(NetError("bad_answer", message), ValueError, RecursionError):
            content: JsonValue = json.loads(answer.content)
        return content


def find_keyless(query: str, count: int) -> list[Hit]:
    """Search by the package ddgs, which connects to search engines by itself, without a key; raises `NetError`.

    Blocks: a cancelled search runs on in its thread until its own timeout.
    """
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    try:
        found = DDGS(timeout=_KEYLESS_SECONDS).text(query, max_results=count)
    except DDGSException as error:
        if "no results" in str(error).lower():
            return []
        raise NetError("unreachable", f"the search engines don't respond ({type(error).__name__})") from error
    return [Hit(str(row.get("title")), str(row.get("href")), str(row.get("body"))) for row in found]


def _setting(name: str) -> str:
    return "searxng_url" if name == "searxng" else f"{name}_api_key"


def _text(row: JsonObject, *names: str) -> str:
    """The first of these fields with a text that isn't blank; else ""."""
    return next((value for name in names if isinstance(value := row.get(name), str) and value.strip()), "")


def _clamped(hits: Iterable[Hit], count: int) -> list[Hit]:
    """At most `count` results with web addresses, each once."""
    found: dict[str, Hit] = {}
    for hit in hits:
        if len(found) < count and hit.url.startswith(("http://", "https://")) and len(hit.url) <= MAX_LINK:
            title, snippet = one_line(hit.title, MAX_TITLE), one_line(hit.snippet, MAX_SNIPPET)
            found.setdefault(hit.url, Hit(title, one_line(hit.url, MAX_LINK), snippet))
    return list(found.values())
