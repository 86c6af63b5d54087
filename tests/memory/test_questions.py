"""Whether a text asks, and only asks."""

import pytest

from gateway.memory.lexemes import lexemes
from gateway.memory.questions import is_asking


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("What is the locker code of Bea?", True),
        ("so what's Bea's locker code", True),
        ("locker code, Bea?", True),
        ("Bea's locker code is 4711, right?", False),
        ("The locker code of Bea", False),
        ("Locker code of Bea. I have it.", False),
    ],
)
def test_a_question_without_a_word_of_its_own_is_an_asking(text: str, asks: bool) -> None:
    assert is_asking(text, frozenset(lexemes("locker code of Bea"))) is asks


@pytest.mark.parametrize(
    "text",
    ["Wie lautet der Code?", "cuál es el código", "quel est le code", "kod ne?", "暗証番号は何ですか", "密码是什么吗"],
)
def test_questions_of_other_languages(text: str) -> None:
    assert is_asking(text, frozenset(lexemes(text)))
