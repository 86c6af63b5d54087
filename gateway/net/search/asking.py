"""Asks one provider after another, in a fixed order, until one has results."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.config.model import WebSearch
from gateway.domain.json import Json
from gateway.domain.text.texts import one_line
from gateway.net.addresses import Rules, parse_url
from gateway.net.errors import NetError
from gateway.net.fetch import load_client
from gateway.net.search import Hit, SearchRequest, brave, exa, keyless, searxng, tavily

MAX_TITLE, MAX_SNIPPET, MAX_LINK = 150, 300, 500
_SECONDS, _BYTES = 12.0, 2 * 2**20


class SearchApi(NamedTuple):
    """A provider with an HTTP API: its key and address, the request, and the parser of its answer."""

    key: str
    base: str
    ask: Callable[[str, int, str, str], SearchRequest]
    hits: Callable[[Json], Iterable[Hit]]


class SearchResults(NamedTuple):
    """The results of one provider."""

    provider: str
    hits: Sequence[Hit]


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
        keyed = [name for name, api in self._apis().items() if api.key or (name == "searxng" and api.base)]
        return [*keyed, "ddgs"] if named == "auto" else [named]

    def _apis(self) -> dict[str, SearchApi]:
        settings, bases = self.settings(), self.bases
        keys = {name: getattr(settings, f"{name}_api_key") for name in ("brave", "tavily", "exa")}
        plain = {name: key.get_secret_value() if key else "" for name, key in keys.items()}
        return {
            "brave": SearchApi(plain["brave"], bases.get("brave", brave.BASE), brave.ask, brave.hits),
            "tavily": SearchApi(plain["tavily"], bases.get("tavily", tavily.BASE), tavily.ask, tavily.hits),
            "exa": SearchApi(plain["exa"], bases.get("exa", exa.BASE), exa.ask, exa.hits),
            "searxng": SearchApi("", settings.searxng_url or "", searxng.ask, searxng.hits),
        }

    async def _ask(self, name: str, query: str, count: int) -> Iterable[Hit]:
        if name == "ddgs":
            return await keyless.find(query, count)
        api = self._apis()[name]
        missing = "searxng_url" if name == "searxng" else f"{name}_api_key"
        if not (api.base if name == "searxng" else api.key):
            raise NetError("not_configured", f"tools.web.search.{missing} is not set.")
        return api.hits(await self._answer(api.ask(query, count, api.key, api.base), missing))

    async def _answer(self, request: SearchRequest, setting: str) -> Json:
        client, host = await asyncio.to_thread(load_client), parse_url(request.url).host
        with client.translated_errors(host):
            async with client.guarded(self.rules, client.Limits(_BYTES, _SECONDS), request.headers) as http:
                answer = await http.request(request.method, request.url, params=request.params, json=request.json)
        if answer.status_code != 200:
            advice = f"; check tools.web.search.{setting}" if answer.status_code in (401, 403) else ""
            raise NetError("refused", f"{host} answered {answer.status_code}{advice}.")
        try:
            content: Json = json.loads(answer.content)
        except (ValueError, RecursionError):
            raise NetError(
                "bad_answer", f"{host} did not answer with JSON; check tools.web.search.{setting}."
            ) from None
        return content


def _clamped(hits: Iterable[Hit], count: int) -> list[Hit]:
    """At most `count` results with web addresses, each once."""
    found: dict[str, Hit] = {}
    for hit in hits:
        if len(found) < count and hit.url.startswith(("http://", "https://")) and len(hit.url) <= MAX_LINK:
            title, snippet = one_line(hit.title, MAX_TITLE), one_line(hit.snippet, MAX_SNIPPET)
            found.setdefault(hit.url, Hit(title, one_line(hit.url, MAX_LINK), snippet))
    return list(found.values())
