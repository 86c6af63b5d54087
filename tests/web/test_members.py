"""What a member's token reaches: every route is the owner's unless it is listed here."""

from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.domain.ids import PrincipalId
from gateway.domain.people.access import Access
from gateway.domain.people.credentials import Scope
from gateway.store.people import principals, tokens
from tests.flow.path import MEMBER
from tests.web.conftest import BEARER, PAGE_NAME, Web
from tests.web.test_security import filled, is_public, routes

SHARED = {
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{name}"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
}
"""Routes that serve members; each is tried below with the words of another person in the database."""
SECRET = "xyzzy"


@pytest.fixture
async def member(web: Web) -> PrincipalId:
    return await web.backend.database.run(lambda tx: principals.ensure_member(tx, "Bob", f"fake:{MEMBER}"))


@pytest.fixture
async def theirs(web: Web, member: PrincipalId) -> AsyncIterator[httpx.AsyncClient]:
    """With a token of the member's that has every scope there is, which no command makes."""
    _, plain = await tokens.create(web.backend.database, member, "bobs", list(Scope), as_owner=True)
    async with httpx.AsyncClient(base_url=web.url, headers={"Authorization": f"Bearer {plain}"}, timeout=60) as client:
        yield client


def asking(text: str) -> dict[str, object]:
    return {"model": "default", "messages": [{"role": "user", "content": text}]}


async def test_every_route_refuses_a_members_token_unless_it_is_listed(web: Web, theirs: httpx.AsyncClient):
    for method, path in routes(web):
        if is_public(method, path) or (method, path) in SHARED:
            continue
        answer = await theirs.request(method, filled(path), headers={"Origin": web.url})
        assert answer.status_code in {401, 403}, (method, path)
        assert answer.json()["error"]["code"] in {"owner_only", "signed_out", "foreign_origin"}, (method, path)


async def test_a_cookie_of_a_members_opens_nothing(web: Web, member: PrincipalId):
    _, plain = await tokens.sign_in(web.backend.database, member, "browser", web.backend.clock.now())
    headers = {"Host": f"{PAGE_NAME}:{web.port}", "Origin": web.page}
    for cookie in ("supaclaw", f"supaclaw-{web.port}", f"__Host-supaclaw-{web.port}"):
        answer = await web.client.get("/chat/events", headers={**headers, "Cookie": f"{cookie}={plain}"})
        assert answer.status_code == 401


async def test_what_a_member_says_by_a_token_is_theirs_and_shows_nothing_of_another(
    web: Web, theirs: httpx.AsyncClient, member: PrincipalId
):
    named = {"X-Session": "same"}
    await web.client.post("/v1/chat/completions", json=asking(f"{SECRET} of the owner"), headers={**BEARER, **named})
    for path, body in (
        ("/v1/chat/completions", asking("hello")),
        ("/v1/completions", {"model": "default", "prompt": "hello"}),
        ("/v1/responses", {"model": "default", "input": "hello"}),
    ):
        answer = await theirs.post(path, json=body, headers=named)
        assert answer.status_code == 200, answer.text
        assert SECRET not in answer.text
    assert {method for method, _ in SHARED} == {"GET", "POST"}
    for path in ("/v1/models", "/v1/models/default"):
        assert (await theirs.get(path)).status_code == 200
    async with web.backend.database.connection() as conn:
        rows = await conn.fetch(
            """select distinct s.principal_id, a.chat, s.label from messages m join sessions s on s.id = m.session_id
               join addresses a on a.session_id = s.id where m.text = 'hello' and m.kind = 'user'"""
        )
    assert {(row["principal_id"], row["label"]) for row in rows} == {(member, 1)}
    assert not any(SECRET in str(call) for call in web.model.prompts[1:])


async def test_a_members_token_has_the_members_tools_alone_and_ends_with_their_access(
    web: Web, theirs: httpx.AsyncClient, member: PrincipalId
):
    answer = await theirs.post("/v1/chat/completions", json=asking("hello"))
    assert answer.status_code == 200
    env = web.path.environments
    offered = {spec.name for spec in env.of(member).toolbox.specs}
    assert offered < {spec.name for spec in env.of(web.backend.owner.id).toolbox.specs}
    web.path.people.allow({"fake": Access("owner")})
    assert (await theirs.post("/v1/chat/completions", json=asking("hello"))).status_code == 401
