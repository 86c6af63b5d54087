import json
from collections.abc import Mapping
from contextlib import aclosing

import pytest

from gateway.domain.errors import DatabaseDown
from gateway.web.components import board


async def test_an_outage_changes_nothing_and_what_changed_meanwhile_comes_after_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(board, "POLL_SECONDS", 0)
    drawn: list[Mapping[str, str] | None] = [
        None,
        {"empty": "<i id=empty>", "a": "<i id=a>1"},
        None,
        {"empty": "<i id=empty>", "a": "<i id=a>1"},
        {"empty": "<i id=empty>", "a": "<i id=a>2", "b": "<i id=b>"},
        {"empty": "<i id=empty>"},
    ]

    async def draw() -> Mapping[str, str]:
        now = drawn.pop(0)
        if now is None:
            raise DatabaseDown("gone")
        return now

    async with aclosing(board.follow(draw)) as frames:
        seen = [json.loads((await anext(frames)).data) for _ in range(3)]
    assert seen == [
        [["fill", "board", "<i id=empty><i id=a>1"]],
        [["replace", "a", "<i id=a>2"], ["insert", "a", "<i id=b>"]],
        [["remove", "a", ""], ["remove", "b", ""]],
    ]
