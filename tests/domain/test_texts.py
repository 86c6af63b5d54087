import tracemalloc

from gateway.domain.texts import GrowingText, one_line, storable


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
