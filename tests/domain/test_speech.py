"""The words of an answer that are read aloud."""

import pytest

from gateway.domain.text.markdown import MAX_SPOKEN, REST_IN_TEXT, spoken


@pytest.mark.parametrize(
    ("markdown", "words"),
    [
        ("# Plan\n\n**Buy** _tea_", "Plan\nBuy tea"),
        ("See [the shop](https://a.example) or https://b.example/x?y", "See the shop or"),
        ("Run:\n\n```sh\nrm -rf\n```\n\nDone.", "Run:\nDone."),
        ("| a | b |\n|---|---|\n| 1 | 2 |", ""),
        ("```\ncode\n```", ""),
        ("😀", ""),
    ],
)
def test_code_tables_and_addresses_are_left_out(markdown: str, words: str) -> None:
    assert spoken(markdown) == words


@pytest.mark.parametrize(("unit", "end"), [("One sentence. ", "One sentence."), ("word ", "word"), ("x", "x")])
def test_a_long_answer_is_cut_with_a_word(unit: str, end: str) -> None:
    text = spoken(unit * 2000)
    assert text.endswith(f"{end} {REST_IN_TEXT}")
    assert len(text) <= MAX_SPOKEN + 1 + len(REST_IN_TEXT)
