import tracemalloc

import pytest

from gateway.domain.text.texts import GrowingText, one_line, quotes_whole, storable


def test_what_no_database_takes_is_left_out() -> None:
    assert storable("a\x00b \ud83d c") == "ab ? c"


def test_every_other_text_stays_as_it_is() -> None:
    assert storable("Grüße, 世界 🎉\n\t") == "Grüße, 世界 🎉\n\t"


def test_a_name_stays_on_its_line_and_marks_nothing_up() -> None:
    assert one_line("  Bob\r\n\u2028Eve\u202e`x`\x00\ud800 ", 64) == "Bob Eve x"
    assert one_line("n" * 1000, 64) == "n" * 64
    assert one_line("\u200b" * 1000, 64) == ""


def test_a_growing_text_is_its_pieces_even_where_they_cut_a_character() -> None:
    text = GrowingText()
    for piece in ("Grüße, ", "\ud83e", "\udd80", ""):
        text.add(piece)
    assert str(text) == "Grüße, \ud83e\udd80"


def test_a_growing_text_takes_the_room_of_its_characters_not_of_its_pieces() -> None:
    text = GrowingText()
    tracemalloc.start()
    try:
        for number in range(10_000, 30_000):
            text.add(str(number))
        taken, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(taken, most) < 3 * len(str(text))


@pytest.mark.parametrize(
    ("text", "value", "stands"),
    [
        ("Write to bob@example.com.", "bob@example.com", True),
        ("Write to bob@example.com.evil", "bob@example.com", False),
        ("Write to notbob@example.com", "bob@example.com", False),
        ("Open https://x.org/a, please", "https://x.org/a", True),
        ("Open https://x.org/a?b=c", "https://x.org/a", False),
        ("Open https://x.org/a", "https://x.org/a?q=secret", False),
        ('Say "hello there" to her', "hello there", True),
        ("room 13 on 2024-05-13", "13", False),
        ("x", "", False),
        ("x", "   ", False),
        ("a (x.org) b", "x.org", True),
        ("do x.org!", "x.org", True),
        ("x.org:8080", "x.org", False),
    ],
)
def test_a_value_counts_only_where_it_stands_for_itself(text: str, value: str, stands: bool) -> None:
    assert quotes_whole(text, value) is stands
