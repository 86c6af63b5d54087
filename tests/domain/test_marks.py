import pytest

from gateway.domain.principals import Label
from gateway.domain.text.marks import UNVERIFIED, sourced


@pytest.mark.parametrize(
    ("text", "label", "private", "marked"),
    [
        ("hi", Label.UNTRUSTED, True, True),
        ("hi", Label.KNOWN, True, False),
        ("hi", Label.OWNER, True, False),
        ("hi", Label.UNTRUSTED, False, False),
        (" ", Label.UNTRUSTED, True, False),
    ],
)
def test_an_answer_that_others_may_have_shaped_is_marked(text: str, label: Label, private: bool, marked: bool) -> None:
    shown = sourced(text, label, private=private)
    assert shown == (f"{text}\n\n{UNVERIFIED}" if marked else text)
