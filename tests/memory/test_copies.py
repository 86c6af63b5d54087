"""Which memories take one row of a block together."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

from gateway.domain.ids import MemoryId
from gateway.domain.memory.memories import Kind, Memory
from gateway.domain.principals import Label
from gateway.memory.wording import fold_copies
from tests.memory.test_wording import TEA

DAY = timedelta(days=1)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def turns(*texts: str) -> list[Memory]:
    return [
        replace(TEA, id=cast("MemoryId", n), kind=Kind.TURN, text=text, label=Label.OWNER, created_at=BEGIN + n * DAY)
        for n, text in enumerate(texts)
    ]


def folded(memories: list[Memory]) -> list[tuple[str, int]]:
    return [(copies.newest.text, copies.count) for copies in fold_copies(memories, 4)]


def test_the_same_fact_takes_one_row_with_its_newest_words_and_its_count() -> None:
    said = turns("I take my tea without sugar", "Pay the rent", "My tea: without sugar!", "Tea with sugar")
    assert folded(said) == [("My tea: without sugar!", 2), ("Pay the rent", 1), ("Tea with sugar", 1)]


def test_another_number_a_negation_and_another_label_are_another_fact() -> None:
    for first, second in (("The rent is 900", "The rent is 950"), ("I eat nuts", "I don't eat nuts")):
        assert len(folded(turns(first, second))) == 2
    own, other = turns("Tea without sugar", "Tea without sugar")
    assert len(folded([own, replace(other, label=Label.KNOWN)])) == 2


def test_a_summary_is_not_shown_beside_the_turn_that_it_repeats() -> None:
    [summary, turn] = turns(
        "Talked about the move. Berta moved to Lisbon in May. Open: the piano", "Berta moved to Lisbon"
    )
    summary = replace(summary, kind=Kind.SUMMARY)
    assert folded([summary, turn]) == [("Berta moved to Lisbon", 1)]
    assert folded([summary]) == [(summary.text, 1)]
