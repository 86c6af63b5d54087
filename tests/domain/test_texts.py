from gateway.domain.texts import storable


def test_what_no_database_takes_is_left_out() -> None:
    assert storable("a\x00b \ud83d c") == "ab ? c"


def test_every_other_text_stays_as_it_is() -> None:
    assert storable("Grüße, 世界 🎉\n\t") == "Grüße, 世界 🎉\n\t"
