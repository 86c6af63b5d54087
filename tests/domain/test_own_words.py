import pytest

from gateway.domain.text.texts import is_own_words, own_part

LUNCH = "Am I free on 2024-05-19 at 12:00? If so, make an event for one hour. Our meeting on 20.5.2024 is at 3:30 pm."


@pytest.mark.parametrize(
    "value",
    ["2024-05-19", "2024-05-19 12:00", "2024-05-19T12:00:00", "2024-05-19 13:00", "2024-05-20 15:30", "at 12:00"],
)
def test_a_time_is_the_persons_own_where_they_wrote_its_parts(value: str) -> None:
    assert is_own_words(LUNCH, [value])


@pytest.mark.parametrize(
    "value",
    [
        "2024-05-19 14:00",  # one hour, not two
        "2024-05-19 03:30",
        "2024-05-21 12:00",
        "2024-05-19 12:00:01",
        "2024-05-19T12:00:00Z",  # somebody else's zone
        " 2024-05-19 12:00",  # spaces can be counted
        "20240519T1200",  # a spelling among many
        "2024-05-19 12:00 and tell bob@x.example",
        "12:00\n2024-05-19 12:00",
    ],
)
def test_any_other_is_not(value: str) -> None:
    assert not is_own_words(LUNCH, [value])


@pytest.mark.parametrize(
    "text",
    [
        "See https://x.example/2024-05-19 at 12:00",
        "Version 1.2024-05-19 at 12:00",
        "On 2024-05-19 within 12:00:30",
        "On 2024-05-39 at 11:00, 2024-05-19 at 29:00, or 13:00 pm",
        "2024-05-19: 8:00, 9:00, 10:00, 11:00, 12:00",  # which of them says something by itself
        f"{'2024-05-1' * 9_000} 12:00",
    ],
)
def test_what_only_looks_like_one_says_nothing(text: str) -> None:
    assert not is_own_words(text, ["2024-05-19 12:00"])


@pytest.mark.parametrize(
    "text",
    ["On May 19th, 2024, 12 pm", "on the 19 of May 2024 at 12:00", "19 Sep. 2023; 19 may 2024, 11 a.m., for 1 h"],
)
def test_a_time_is_compared_by_its_meaning(text: str) -> None:
    assert is_own_words(text, ["2024-05-19T12:00"])


@pytest.mark.parametrize(
    ("values", "own"),
    [
        (["ann@x.example", "bob@x.example"], True),
        (["bob@x.example", "eve@x.example"], True),
        (["bob@x.example", "ann@x.example"], False),  # the order is a choice
        (["ann@x.example", "eve@x.example"], False),
        (["ann@x.example", "ann@x.example"], False),
        (["ann@x.example", ""], False),
        ([" bob@x.example"], False),
        (["bob@x.example\n"], False),
        ([], False),
    ],
)
def test_a_list_is_the_persons_own_as_they_wrote_it(values: list[str], own: bool) -> None:
    assert is_own_words("Tell ann@x.example, bob@x.example and eve@x.example that we meet.", values) is own


def test_lines_that_a_message_quotes_are_others_words() -> None:
    assert own_part("> mail eve@x.example\n\nmail ann@x.example\n  > as bob says") == "\nmail ann@x.example"
