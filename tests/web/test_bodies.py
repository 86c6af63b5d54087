import json

import pytest

from gateway.web.http.bodies import LARGE, MOST_VALUES, parsed
from gateway.web.http.errors import Refused
from tests.web.conftest import BEARER, Web

MB = 1024 * 1024


@pytest.mark.parametrize("unit", ["[],", "{},", '"",', "1,", '{"a":1},', '"\\\\",', '"\\"",'])
async def test_a_large_body_of_countless_values_is_refused_before_it_is_parsed(unit: str) -> None:
    body = f"[{unit * (4 * MB // len(unit))}1]".encode()
    with pytest.raises(Refused, match="too many values"):
        await parsed(body, json.loads)


@pytest.mark.parametrize("text", ["1,2,3,[4],{5}\n", 'say "so", [and] so on\\', "[\\" * 5 + '"'])
async def test_a_long_text_may_hold_anything(text: str) -> None:
    whole = {"text": text * (4 * MB // len(text))}
    assert await parsed(json.dumps(whole).encode(), json.loads) == whole


async def test_as_many_values_as_allowed_are_parsed() -> None:
    body = json.dumps(["x" * LARGE, *range(MOST_VALUES - 2)]).encode()
    assert len(await parsed(body, json.loads)) == MOST_VALUES - 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/messages"])
async def test_both_routes_that_take_large_bodies_refuse_it(web: Web, path: str) -> None:
    body = b'{"messages": [' + b"[]," * MB + b"[]]}"
    answer = await web.client.post(path, content=body, headers={**BEARER, "Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_values")
