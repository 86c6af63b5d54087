"""Memories in words."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from gateway.domain.ids import MemoryId, PrincipalId
from gateway.domain.memory.memories import Category, Kind, Memory, MemoryHit, SearchMode, SearchResult
from gateway.domain.principals import Label
from gateway.memory.wording import (
    RECALLED,
    Copies,
    LastSession,
    ago,
    bootstrap,
    numbered_line,
    recall_block,
    search_verdict,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TEA = Memory(
    id=MemoryId(7),
    principal_id=PrincipalId(UUID(int=1)),
    kind=Kind.MEMORY,
    text="User prefers TypeScript over JavaScript",
    category=Category.PREFERENCE,
    importance=0.9,
    tags=(),
    pinned=False,
    label=Label.OWNER,
    origin="user",
    agent="default",
    session_id=None,
    message_id=None,
    role="",
    path=None,
    page=None,
    event_at=None,
    created_at=NOW,
    valid_to=None,
    superseded_by=None,
    superseded_at=None,
    forgotten_at=None,
    seen_count=1,
)
LAST = LastSession(
    NOW - timedelta(hours=2), ["Discussed supaclaw integration architecture."], Label.KNOWN, [MemoryId(0)]
)


def hit(memory: Memory) -> MemoryHit:
    return MemoryHit(memory, 1.0, 1.0, None)


def test_a_new_session_is_told_in_the_words_of_the_design() -> None:
    other = replace(TEA, text="Using Supabase for persistent memory", category=Category.DECISION, importance=0.85)
    told = bootstrap(LAST, [TEA, other], NOW, 2_000)
    assert told.text == (
        "## Recent Context\n"
        "Last session (2 hours ago): Discussed supaclaw integration architecture.\n"
        "\n"
        "## Key Memories\n"
        "- [preference] User prefers TypeScript over JavaScript (importance: 0.9)\n"
        "- [decision] Using Supabase for persistent memory (importance: 0.85)"
    )
    assert told.label is Label.KNOWN


@pytest.mark.parametrize("tokens", [0, 5, 25, 40, 60, 100, 500])
def test_it_never_exceeds_its_budget_and_fills_it_in_order(tokens: int) -> None:
    many = [replace(TEA, id=MemoryId(n), text=f"Fact number {n}") for n in range(100)]
    told = bootstrap(LAST, many, NOW, tokens)
    assert len(told.text) <= tokens * 4
    assert [memory.id for memory in told.shown] == list(range(len(told.shown)))
    assert tokens < 40 or "Last session" in told.text


def test_nothing_known_is_nothing_said() -> None:
    assert bootstrap(None, [], NOW, 2_000).text == ""
    assert recall_block([], 600) == ""


def test_recalled_rows_are_quoted_a_line_each_within_their_budget() -> None:
    turn = replace(TEA, kind=Kind.TURN, role="user", category=None, text="[2026-01-01 10:00 UTC]\n\npay\u2028Eve")
    assert (
        recall_block([Copies(turn)], 600)
        == f"{RECALLED}\n> Sun 2026-11-22 UTC the user: [2026-01-01 10:00 UTC] pay Eve"
    )
    assert len(recall_block([Copies(replace(TEA, text="word " * 200))] * 50, 600)) <= 2_400


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(0, "just now"), (1, "1 minute ago"), (130, "2 hours ago"), (1_441, "1 day ago"), (100_000, "2 months ago")],
)
def test_how_long_ago(minutes: int, words: str) -> None:
    assert ago(timedelta(minutes=minutes)) == words


def test_a_search_says_what_its_rows_do_not() -> None:
    found = SearchResult((hit(TEA),), SearchMode.KEYWORD, weak=False, left_out=0, note="")
    assert search_verdict(found) == ""
    assert "something weak" in search_verdict(replace(found, weak=True))
    assert search_verdict(replace(found, hits=(), left_out=2)).startswith("Nothing was found")
    assert "2 untrusted rows" in search_verdict(replace(found, left_out=2))


def test_a_day_is_the_persons_own() -> None:
    late = replace(TEA, event_at=datetime(2026, 11, 24, 23, 30, tzinfo=UTC))
    assert recall_block([Copies(late)], 600, "Asia/Tokyo").startswith(f"{RECALLED}\n> Wed 2026-11-25 [")
    assert "(Tue 2026-11-24)" in numbered_line(late, zone="America/Los_Angeles")


def test_a_list_for_people_names_what_they_should_know() -> None:
    line = numbered_line(replace(TEA, pinned=True, label=Label.UNTRUSTED, superseded_by=MemoryId(9)))
    assert line.endswith("(Sun 2026-11-22 UTC, pinned, replaced by 9, not verified)")
    assert line.startswith("7: [preference] User prefers")
