import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gateway.memory.wording import MemoryRow
from tests.cli.conftest import Supaclaw
from tests.importers.test_chats import chatgpt, said
from tests.importers.test_markdown import written


@pytest.fixture(autouse=True)
def _somebody_owns_it(dsn: str, monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> None:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    supaclaw("owner", "set", "telegram", "1")


def test_what_was_imported_and_remembered_is_found_with_why_and_where(supaclaw: Supaclaw, place: Path) -> None:
    talks = [
        chatgpt("a", said("user", "Where is the spare key to the boathouse?"), said("assistant", "Under the heron.")),
        chatgpt("b", said("user", "What is the capital of Peru?"), said("assistant", "Lima.")),
    ]
    supaclaw("import", "chatgpt", str(written(place, "conversations.json", json.dumps(talks))))
    supaclaw("remember", "The boathouse is painted green", "--category", "fact", "--tags", "house")

    found: Any = supaclaw("search", "spare key boathouse", "--mode", "keyword", "--json").json
    memories: Any = supaclaw("search", "boathouse", "--mode", "keyword", "--types", "memory", "--json").json
    before: Any = supaclaw("search", "boathouse", "--mode", "keyword", "--until", "2026-03-01", "--json").json
    shown = supaclaw("search", "boathouse", "--mode", "keyword", "--tags", "HOUSE")

    best = found["hits"][0]
    assert (best["text"], best["who"], best["created_at"][:16]) == (
        "Where is the spare key to the boathouse?",
        "the user",
        "2026-03-01T12:00",
    )
    assert best["session"]
    assert best.keys() - {"score", "words", "cosine"} == {field.name for field in fields(MemoryRow)}
    on_the_day = supaclaw("search", "boathouse", "--mode", "keyword", "--until", "20260301", "--json").json
    assert {hit["kind"] for hit in on_the_day["hits"]} == {"turn"}, "a date, however it is written, is a whole day"
    assert best["words"] == pytest.approx(1)
    assert [hit["text"] for hit in memories["hits"]] == ["The boathouse is painted green"]
    assert {hit["kind"] for hit in before["hits"]} == {"turn"}
    assert shown.out.splitlines()[0].endswith("[fact] The boathouse is painted green")
    assert "words 100%" in shown.out.splitlines()[1]


def test_without_a_model_words_are_compared_and_it_says_so(supaclaw: Supaclaw, place: Path) -> None:
    (place / "config.json").write_text('{"models": {"embedding": "none"}}')
    supaclaw("remember", "The boathouse is painted green")

    done = supaclaw("search", "boathouse")
    nothing = supaclaw("search", "zeppelin")

    assert done.code == 0
    assert "painted green" in done.out
    assert "Only words were compared" in done.err
    assert (nothing.code, nothing.out) == (0, "")
    assert "Nothing was found." in nothing.err
