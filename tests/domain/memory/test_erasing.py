import pytest

from gateway.domain.memory.erasing import Erasure, letters

SAID = "My PIN at the bank is 4711, and the door code is 99. Ok?"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (SAID, "[erased]"),
        ("You said: my **PIN** at the bank\nis 4711, and the door code is 99!", "[erased]"),
        ("Hello. my pin at the bank is 4711 and the door code is 99. Bye.", "Hello. [erased] Bye."),
        ("- a\n- My PIN at the bank is 4711, and the door code is 99\n- b", "- a\n- [erased]\n- b"),
        ("Ok? Then the door code is 98.", "Ok? Then the door code is 98."),
        ("", ""),
    ],
)
def test_whole_sentences_that_quote_it_go_and_others_stay(text: str, left: str) -> None:
    assert Erasure([], [SAID]).clean(text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("superquaggas are nice. Others too.", "[erased] Others too."),
        ('{"text": "a \\"QUAGGA\\" is\\nhere", "n": 1}', '{"text": "a \\"[erased]\\" is\\nhere", "n": 1}'),
        ("Z\\u00fcrich STRASSE", "[erased]"),
        ("Zu\u0308rich_Straße", "[erased]"),
        ("ＱＵＡＧＧＡ", "[erased]"),
        ("quagga. quagga. Quagga!", "[erased]"),
    ],
)
def test_words_are_found_inside_of_words_and_whatever_their_spelling(text: str, left: str) -> None:
    assert Erasure(["quagga", "Zürich Straße"], []).clean(text) == left


def test_a_shortened_copy_is_known_by_its_beginning() -> None:
    long = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen " * 3

    assert Erasure([], [long]).clean(f"{long[:160]}…") == "[erased]"


def test_what_is_short_is_not_searched_for() -> None:
    assert Erasure([], ["yes, please"]).clean("yes, please") == "yes, please"
    assert letters("a - b!") == 2


def test_texts_in_json_are_cleaned_and_nothing_else() -> None:
    value = {"quagga": [1, None, True, "a quagga", {"x": "b"}]}

    assert Erasure(["quagga"], []).clean_json(value) == {"[erased]": [1, None, True, "[erased]", {"x": "b"}]}
