"""The document says what is sent: checked against every route that it lists, and against requests that go wrong."""

import re
from typing import Any

from gateway.store.people import tokens
from gateway.web.http.headers import SAFE_METHODS
from tests.web.conftest import BEARER, Running, Web
from tests.web.test_security import PUBLIC, filled, routes

Json = dict[str, Any]
METHODS = {"get", "post", "put", "patch", "delete"}


async def document_of(web: Web) -> Json:
    document: Json = (await web.client.get("/api/openapi.json")).json()
    return document


def operations(document: Json) -> list[tuple[str, str, Json]]:
    return [
        (method.upper(), path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    ]


def references(value: object) -> list[str]:
    match value:
        case {"$ref": str(name)}:
            return [name]
        case dict():
            return [found for inner in value.values() for found in references(inner)]
        case list():
            return [found for inner in value for found in references(inner)]
        case _:
            return []


async def test_the_document_is_whole(web: Web) -> None:
    document = await document_of(web)
    assert document["openapi"].startswith("3.1")
    schemes = document["components"]["securitySchemes"]
    assert (schemes["bearer"]["scheme"], schemes["cookie"]["in"]) == ("bearer", "cookie")
    for name in references(document):
        assert name.removeprefix("#/components/schemas/") in document["components"]["schemas"], name
    listed = operations(document)
    assert len({operation["operationId"] for _, _, operation in listed}) == len(listed)
    for method, path, operation in listed:
        assert [name for requirement in operation["security"] for name in requirement if name not in schemes] == []
        named = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "path"}
        # the routes of files and webhooks look their names up themselves
        assert named <= set(re.findall(r"{(\w+)}", path))
        for status, response in operation["responses"].items():
            assert re.fullmatch(r"[2-5]\d\d", status), (method, path)
            assert response["description"], (method, path, status)


async def test_every_route_of_programs_is_listed_with_the_credential_it_requires(web: Web) -> None:
    listed = {(method, path): operation["security"] for method, path, operation in operations(await document_of(web))}
    for method, path in routes(web):
        if path.startswith(("/api/", "/v1/", "/trigger", "/metrics", "/mcp")):
            assert listed.pop((method, path)) == [{"bearer": []}], (method, path)
    assert listed == {("GET", "/health"): [], ("POST", "/webhook/{name}"): []}


async def test_what_is_sent_is_documented(web: Web) -> None:
    _, memory = await tokens.create(web.backend.database, web.backend.owner.id, "memory only", ["memory"])
    sent: list[tuple[int, str, str]] = []
    listed = operations(await document_of(web))
    for method, path, operation in listed:
        requests: list[Json] = [
            {"headers": {}},
            {"headers": {"Authorization": f"Bearer {memory}"}},
            {"headers": BEARER | {"Host": "elsewhere"}},
            {"headers": BEARER, "content": b"x" * 65_537},
            {"headers": {"Sec-Fetch-Site": "cross-site"}},
        ]
        if "events" not in path:
            requests += [{"headers": BEARER, "params": {"limit": "x", "wait": "x"}}]
        if method not in SAFE_METHODS:
            requests += [{"headers": BEARER, "content": b"\xff{"}, {"headers": BEARER, "json": {"model": "none"}}]
        for request in requests:
            answer = await web.client.request(method, filled(path), **request)
            sent.append((answer.status_code, method, path))
            assert str(answer.status_code) in operation["responses"], (method, path, request, answer.text)
    assert {401, 403, 421, 413, 400, 404} <= {status for status, _, _ in sent}
    assert {(method, path) for status, method, path in sent if status == 401} >= {
        (method, path) for method, path, _ in listed if path not in PUBLIC
    }


async def test_guesses_and_a_database_that_is_away_are_documented(running: Running) -> None:
    started = await running.start()
    document = await document_of(started.web)
    for _ in range(25):
        answer = await started.web.client.get("/api/status", headers={"Authorization": "Bearer claw_no"})
    await started.stop()
    assert str(answer.status_code) in document["paths"]["/api/status"]["get"]["responses"]
    for method, path, operation in operations(document):
        assert "503" in operation["responses"], (method, path)
