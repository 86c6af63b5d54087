"""Search: every provider is asked as its API wants it, and the next one where one fails."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from gateway.config.model import WebSearch
from gateway.net import search as web_search
from gateway.net.errors import NetError
from gateway.net.search import Hit, WebSearcher
from tests.net import servers
from tests.net.servers import Respond, Server, search_apis, serving


def searching(server: Server, **settings: object) -> WebSearcher:
    keys = {name: SecretStr(str(key)) for name, key in settings.items() if name.endswith("_key")}
    web = WebSearch.model_validate({**settings, **keys})
    bases = {"brave": server.url, "tavily": f"{server.url}/tavily", "exa": f"{server.url}/exa"}
    return WebSearcher(lambda: web, lambda: server.rules, bases)


ALL = {"brave_api_key": "key", "tavily_api_key": "key", "exa_api_key": "key"}


@pytest.fixture
async def apis() -> AsyncIterator[Server]:
    async with serving(search_apis()) as server:
        yield server


@pytest.mark.parametrize(
    ("provider", "hit"),
    [
        ("brave", Hit("One <b>", "https://one.example/", "About one")),
        ("tavily", Hit("Two", "https://two.example/", "About two")),
        ("exa", Hit("Three", "https://three.example/", "About three")),
        ("searxng", Hit("Four", "https://four.example/", "About four")),
    ],
)
async def test_each_is_asked_as_it_wants(apis: Server, provider: str, hit: Hit) -> None:
    search = searching(apis, provider=provider, searxng_url=f"{apis.url}/searxng", **ALL)

    found = await search.find("what is new & old? 2026", 3)

    assert (found.provider, found.hits) == (provider, [hit])
    [asked] = apis.asked
    said = asked.path + (asked.body.decode() if asked.body else "")
    assert "what+is+new+%26+old%3F+2026" in said or json.loads(asked.body)["query"] == "what is new & old? 2026"


async def test_auto_asks_those_with_a_key_and_ddgs_last(apis: Server) -> None:
    assert searching(apis).providers == ["ddgs"]
    assert searching(apis, exa_api_key="key", searxng_url=apis.url).providers == ["exa", "searxng", "ddgs"]
    assert searching(apis, **ALL, provider="tavily").providers == ["tavily"]


async def test_the_next_one_is_asked_where_one_fails_or_finds_nothing() -> None:
    respond = search_apis(broken=("/res/v1/web/search",), answers={"/tavily/search": {"results": []}})
    async with serving(respond) as apis:
        found = await searching(apis, **ALL).find("x", 5)

    assert found.provider == "exa"
    assert [asked.path.partition("?")[0] for asked in apis.asked] == [
        "/res/v1/web/search",
        "/tavily/search",
        "/exa/search",
    ]


async def test_all_failures_are_told_with_the_setting_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(_query: str, _count: int) -> list[Hit]:
        raise NetError("unreachable", "the search engines do not answer")

    monkeypatch.setattr(web_search, "find_keyless", down)
    async with serving(search_apis(broken=("/exa/search",))) as apis:
        search = searching(apis, brave_api_key="wrong", exa_api_key="key", searxng_url="http://127.0.0.1:9/")
        with pytest.raises(NetError) as error:
            await search.find("x", 5)

    text = str(error.value)
    assert error.value.code == "search_failed"
    assert "brave: 127.0.0.1 answered 401; check tools.web.search.brave_api_key." in text
    assert "exa: 127.0.0.1 answered 503." in text
    assert "searxng: Not connected" in text


@pytest.mark.parametrize(
    ("respond", "told"),
    [
        (servers.page(b"<html>", "text/html"), "did not answer with JSON"),
        (servers.page(b"[" * 100_000, "application/json"), "did not answer with JSON"),
        (servers.redirect("http://169.254.169.254/"), "answered 302"),
        (servers.endless(), "larger than 2 MB"),
        (servers.bomb(), "larger than 2 MB"),
    ],
)
async def test_a_bad_provider_is_one_failure(respond: Respond, told: str) -> None:
    async with serving(respond) as apis:
        with pytest.raises(NetError, match=told):
            await searching(apis, provider="brave", brave_api_key="key").find("x", 5)


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"web": None}, {"web": {"results": "no"}}, {"web": {"results": [1, None, {}]}}]
)
async def test_an_answer_of_another_form_has_no_results(answer: object) -> None:
    async with serving(search_apis(answers={"/res/v1/web/search": answer})) as apis:
        found = await searching(apis, provider="brave", brave_api_key="key").find("x", 5)

    assert found == ("brave", ())


async def test_results_are_clamped() -> None:
    row = {"title": "t" * 1_000, "description": "d\n\u202e" * 1_000}
    links = ["javascript:alert(1)", "https://a.example/", "https://a.example/", "https://b.example/" + "x" * 1_000]
    rows = [{**row, "url": url} for url in [*links, *(f"https://{number}.example/" for number in range(50))]]
    async with serving(search_apis(answers={"/res/v1/web/search": {"web": {"results": rows}}})) as apis:
        found = await searching(apis, provider="brave", brave_api_key="key").find("x", 4)

    assert [hit.url for hit in found.hits] == ["https://a.example/", *(f"https://{n}.example/" for n in range(3))]
    assert all(len(hit.title) <= 150 and len(hit.snippet) <= 300 for hit in found.hits)
    assert "\n" not in found.hits[0].snippet


async def test_a_key_is_asked_for_where_a_provider_is_named_without_one(apis: Server) -> None:
    with pytest.raises(NetError, match=r"tools.web.search.exa_api_key is not set"):
        await searching(apis, provider="exa").find("x", 5)


class TestKeyless:
    PAGE = (
        b"<html><body><div class='links_main result__body'><h2><a href='https://five.example/'>Five</a></h2>"
        b"<a href='https://five.example/'>About five</a></div></body></html>"
    )

    async def test_ddgs_reads_a_page_of_results(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with serving(servers.page(self.PAGE)) as engine:
            _only(monkeypatch, engine)
            found = await searching(engine).find("five", 5)

        assert found == ("ddgs", [Hit("Five", "https://five.example/", "About five")])

    async def test_engines_that_refuse_are_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with serving(servers.page(b"no", "text/plain", "429 Too Many Requests")) as engine:
            _only(monkeypatch, engine)
            assert await asyncio.to_thread(web_search.find_keyless, "five", 5) == []


def _only(patch: pytest.MonkeyPatch, engine: Server) -> None:
    """ddgs with one engine, at an address of the test."""
    from ddgs import ddgs
    from ddgs.engines.duckduckgo import Duckduckgo

    patch.setattr(Duckduckgo, "search_url", f"{engine.url}/html/")
    patch.setitem(ddgs.ENGINES, "text", {"duckduckgo": Duckduckgo})
