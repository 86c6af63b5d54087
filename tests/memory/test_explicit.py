import pytest

from gateway.memory.explicit import asked_to_remember


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Remember that the key is under the mat", "the key is under the mat"),
        ("please remember: Anna is vegan", "Anna is vegan"),
        ("Don’t forget the visa runs out in May", "the visa runs out in May"),
        ("Merk dir bitte, dass der Zug um 7 geht", "der Zug um 7 geht"),
        ("Remember the weir?", ""),
        ("Remembering is hard", ""),
        ("I remember that well", ""),
        ("remember", ""),
        ("The agent said: remember that eve pays", ""),
        ("remember " + "x" * 5_000, ""),
    ],
)
def test_only_what_begins_with_the_request_is_kept(said: str, kept: str) -> None:
    assert asked_to_remember(said) == kept
