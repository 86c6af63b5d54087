import re

import pytest
from fastapi.routing import APIRoute

from gateway.store.people import tokens
from gateway.web.auth.access import MESSAGE_BODY
from gateway.web.auth.request_guard import split_host
from gateway.web.server import build_app
from gateway.web.v1.serving import MAX_INLINE
from tests.web.conftest import BEARER, Running, Web

PAGES = {
    "/secrets",
    "/files",
    "/files/checkpoints",
    *("/agents", "/schedules", "/tools"),
    *("/", "/inbox", "/approvals", "/channels", "/checks", "/c", "/c/new", "/c/{id}", "/jobs", "/logs"),
    "/c/temporary-{id}",
    "/conversations{rest:path}",
    *("/memory", "/people", "/settings", "/setup", "/tasks", "/tasks/{id}", "/tasks/{id}/compare", "/tokens", "/usage"),
    "/turns/{message}",
}
"""They send whoever is not signed in to the sign-in."""
OAUTH = {"/oauth/{endpoint}", "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"}
PUBLIC = PAGES | OAUTH | {"/secret", "/oauth/mcp", "/health", "/login", "/login/state", "/webhook/{name}"}


def is_public(method: str, path: str) -> bool:
    """Whether anybody may ask there; to consent to a client of OAuth takes the owner's session."""
    return path in PUBLIC or (method, path) == ("GET", "/oauth/authorize")


def routes(web: Web) -> list[tuple[str, str]]:
    """Every method and path the app answers, as the router knows them."""
    schema = build_app(web.backend)
    found = []
    for router in schema.router.routes:
        inner = getattr(router, "original_router", None)
        for route in inner.routes if inner else [router]:
            if isinstance(route, APIRoute):
                found += [(method, route.path) for method in route.methods]
    return found


def filled(path: str) -> str:
    """The path with something of the right kind in every place."""
    id = "6f2c1f0e-0000-4000-8000-000000000000"
    places = {
        "task_id": id,
        "file_id": id,
        "inbox_id": "1",
        "id": id if path.startswith(("/c/", "/tasks")) else "1",
        "row": "1",
        "name": "default",
        "code": "ABCDEFGH",
        "which": "1",
        "source": "ci",
        "number": "A1",
        "answer": "approve",
        "act": "enable",
        "kind": "skills",
        "message": "1",
        "step": "1",
    }
    return path.format(**places)


async def test_every_route_but_the_public_ones_asks_who_is_there(web: Web):
    table = routes(web)
    assert ("POST", "/v1/chat/completions") in table
    assert ("GET", "/chat/events") in table
    for method, path in table:
        if is_public(method, path):
            continue
        answer = await web.client.request(method, filled(path), headers={"Origin": web.url})
        assert answer.status_code == 401, (method, path)
        assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_no_route_breaks_at_a_number_beyond_the_range_of_rows(web: Web):
    async with web.sign_in() as browser:
        for method, path in routes(web):
            if "{" in path:
                client, more = (web.client, BEARER) if path.startswith(("/api/", "/v1/")) else (browser, {})
                answer = await client.request(method, re.sub(r"\{[^}]+\}", str(2**63), path), headers=more)
                assert answer.status_code < 500, (method, path)


async def test_every_bearer_route_refuses_a_token_without_its_scope(web: Web):
    of_memory = ("/api/memory", "/api/bootstrap", "/api/context", "/api/log", "/v1/embeddings")
    made = {
        scope: (await tokens.create(web.backend.database, web.backend.owner.id, f"{scope} only", [scope]))[1]
        for scope in ("memory", "trigger")
    }
    for method, path in routes(web):
        if not path.startswith(("/api/", "/v1/", "/metrics", "/trigger")):
            continue
        plain = made["trigger" if path.startswith(of_memory) else "memory"]
        answer = await web.client.request(method, filled(path), headers={"Authorization": f"Bearer {plain}"})
        assert answer.status_code == 403, (method, path)
        assert answer.json()["error"]["code"] == "missing_scope"


async def test_a_token_with_the_scope_gets_in_and_is_marked_as_used(web: Web):
    row, plain = await tokens.create(web.backend.database, web.backend.owner.id, "reader", ["read"])
    headers = {"Authorization": f"Bearer {plain}"}
    assert (await web.client.get("/api/status", headers=headers)).status_code == 200
    [listed] = await tokens.list_all(web.backend.database)
    assert (listed.id, listed.last_used_at is not None) == (row.id, True)
    await tokens.revoke(web.backend.database, "reader")
    assert (await web.client.get("/api/status", headers=headers)).status_code == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer x y", "Basic YTpi", "Bearer claw_wrong", "claw_local"])
async def test_a_wrong_credential_is_no_credential(web: Web, header: str):
    assert (await web.client.get("/api/status", headers={"Authorization": header})).status_code == 401


async def test_a_browser_session_is_no_bearer_and_a_bearer_is_no_browser_session(web: Web):
    async with web.sign_in() as browser:
        cookie = browser.cookies["claw"]
        assert (await browser.get("/api/status")).status_code == 401
        assert (await web.client.get("/api/status", headers={"Authorization": f"Bearer {cookie}"})).status_code == 401
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "admin", ["admin"])
    answer = await web.client.post("/chat", headers={**web.at_page, "Cookie": f"claw={plain}"})
    assert answer.status_code == 401


async def test_guessing_is_slowed_down_on_loopback_too(web: Web):
    answers = [await web.client.get("/api/status", headers={"Authorization": f"Bearer no{n}"}) for n in range(25)]
    assert answers[0].status_code == 401
    assert answers[-1].status_code == 429
    assert answers[-1].headers["retry-after"] == "60"
    assert (await web.client.get("/api/status", headers=BEARER)).status_code == 200
    assert (await web.client.get("/health")).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost:x", "", "[::2]"],
)
async def test_other_host_names_are_refused(web: Web, host: str):
    answer = await web.client.get("/health", headers={"Host": host.format(port=web.port)})
    assert answer.status_code == 421
    assert "Set web.public_url in config.json" in answer.json()["error"]["message"]


async def test_a_browser_reads_which_key_to_set(web: Web):
    headers = {"Host": "box.<b>.ts.net", "Accept": "text/html,*/*;q=0.8"}
    answer = await web.client.get("/chat", headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (421, "text/plain; charset=utf-8")
    assert "Set web.public_url" in answer.text


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:9", "[::1]:9", "LOCALHOST"])
async def test_own_host_names_are_served(web: Web, host: str):
    assert (await web.client.get("/health", headers={"Host": host.format(port=web.port)})).status_code == 200


def test_a_host_is_split_at_its_port():
    assert [split_host(host) for host in ("a:1", "a", "[::1]", "[::1]:80")] == [
        ("a", "1"),
        ("a", ""),
        ("[::1]", ""),
        ("[::1]", "80"),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "{url}", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "{url}", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
async def test_a_foreign_page_cannot_post_with_the_owners_cookie(web: Web, headers: dict[str, str]):
    async with web.sign_in() as browser:
        del browser.headers["Origin"]
        sent = {name: value.format(url=web.page) for name, value in headers.items()}
        answer = await browser.post("/chat", data={"text": "hi", "client_id": "1"}, headers=sent)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "foreign_origin"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "{url}"},
        {"Origin": "{url}", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "null", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-origin"},
    ],
)
async def test_our_own_page_can_post(web: Web, headers: dict[str, str]):
    async with web.sign_in() as browser:
        del browser.headers["Origin"]
        sent = {name: value.format(url=web.page) for name, value in headers.items()}
        answer = await browser.post("/chat", data={"text": "hi", "client_id": "1"}, headers=sent)
    assert answer.status_code == 202


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}])
async def test_a_foreign_page_cannot_read_a_stream(web: Web, headers: dict[str, str]):
    async with web.sign_in() as browser:
        assert (await browser.get("/chat/events", headers=headers)).status_code == 403


async def test_following_a_link_from_elsewhere_is_no_attack(web: Web):
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert (await web.client.get("/login", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/login", "/health", "/nowhere", "/api/status", "/static/app.css", "/api/openapi.json"]
)
async def test_every_answer_carries_the_headers(web: Web, path: str):
    answer = await web.client.get(path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "media-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    stored = answer.headers["cache-control"]
    assert stored.startswith("public") if path.startswith("/static") else stored == "no-store"


async def test_a_refusal_carries_the_headers_as_well(web: Web):
    answer = await web.client.get("/", headers={"Host": "evil.example"})
    assert "content-security-policy" in answer.headers


async def test_too_much_is_refused_whether_or_not_it_says_how_much(web: Web):
    async def endless():
        for _ in range(MAX_INLINE // 2**20 + 2):
            yield b"x" * 2**20

    for path, limit in (("/v1/chat/completions", MAX_INLINE), ("/api/messages", MESSAGE_BODY)):
        told = await web.client.post(path, content=b"x" * (limit + 1), headers=BEARER)
        assert told.status_code == 413, path
        untold = await web.client.post(path, content=endless(), headers=BEARER)
        assert untold.status_code == 413, path


async def test_pages_of_documentation_are_not_served(web: Web):
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert (await web.client.get(path)).status_code == 404
    assert "/v1/chat/completions" in (await web.client.get("/api/openapi.json")).json()["paths"]


async def test_reading_changes_nothing(web: Web):
    for method, path in routes(web):
        if method == "GET":
            assert not path.startswith(("/logout", "/trigger"))
    assert (await web.client.get("/logout")).status_code == 405


async def test_a_defect_is_told_without_its_details(running: Running):
    async def broken():
        raise RuntimeError("secret detail")

    started = await running.start(status=broken)
    answer = await started.web.client.get("/api/status", headers=BEARER)
    await started.stop()
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "secret detail" not in answer.text
    assert "content-security-policy" in answer.headers


async def test_a_client_that_leaves_mid_stream_is_forgotten(web: Web):
    async with web.sign_in() as browser:
        async with browser.stream("GET", "/chat/events") as stream:
            assert await anext(stream.aiter_lines()) != ""
        assert (await browser.get("/login/state")).json() == {"signed_in": True}
