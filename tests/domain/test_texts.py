from gateway.domain.texts import one_line, storable


def test_what_no_database_takes_is_left_out() -> None:
    assert storable("a\x00b \ud83d c") == "ab ? c"


def test_every_other_text_stays_as_it_is() -> None:
    assert storable("Grüße, 世界 🎉\n\t") == "Grüße, 世界 🎉\n\t"


def test_a_name_stays_on_its_line_and_marks_nothing_up() -> None:
    assert one_line("  Bob\r\n\u2028Eve\u202e`x`\x00\ud800 ", 64) == "Bob Eve x"
    assert one_line("n" * 1000, 64) == "n" * 64
    assert one_line("\u200b" * 1000, 64) == ""
