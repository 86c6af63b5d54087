"""Whether a text asks, and only asks."""

from datetime import date

import pytest

from gateway.memory.lexemes import lexemes
from gateway.memory.questions import days_asked, is_asking


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("What is the locker code of Bea?", True),
        ("so what's Bea's locker code", True),
        ("locker code, Bea?", True),
        ("Can you please tell me Bea's locker code once more?", True),
        ("I need the locker code of Bea", True),
        ("Kannst du mir sagen, wie der locker code von Bea ist", True),
        ("You have the locker code of Bea", False),
        ("Is the locker code of Bea with her sister Tilda?", False),
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


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("What did I say last Tuesday?", "2026-11-24", "2026-11-24"),
        ("Was war vorgestern?", "2026-11-26", "2026-11-26"),
        ("vor zwei Wochen", "2026-11-11", "2026-11-17"),
        ("el martes pasado", "2026-11-24", "2026-11-24"),
        ("l'été dernier", "2026-05-31", "2026-09-01"),
        ("geçen hafta ne dedim", "2026-11-16", "2026-11-22"),
        ("il mese scorso", "2026-10-01", "2026-10-31"),
        ("na terça-feira", "2026-11-24", "2026-11-24"),
        ("5月3日に何をした", "2026-05-02", "2026-05-04"),
        ("去年", "2025-01-01", "2025-12-31"),
        ("in December 2024", "2024-11-30", "2025-01-01"),
        ("on 2026-03-02", "2026-03-01", "2026-03-03"),
    ],
)
def test_times_in_questions(text: str, first: str, last: str) -> None:
    assert [(str(days.first), str(days.last)) for days in days_asked(text, date(2026, 11, 28))] == [(first, last)]


@pytest.mark.parametrize("text", ["May I eat nuts?", "hier ist der Schlüssel", "31.2.", "5 years", "which mayo?"])
def test_no_time_in_a_question(text: str) -> None:
    assert days_asked(text, date(2026, 11, 28)) == []
