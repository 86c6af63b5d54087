import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.secrets.leaks import Leaks

VALUE = 'p/4ss+w0rd=with "odd" chars~ü'
SHOWN = "${secret:ODD}"


def finder(*values: str) -> Leaks:
    leaks = Leaks()
    leaks.learn(dict.fromkeys(values, SHOWN))
    return leaks


@pytest.mark.parametrize(
    "encode",
    [
        lambda raw: raw.decode(),
        lambda raw: base64.b64encode(raw).decode(),
        lambda raw: base64.b64encode(b"u:" + raw).decode(),
        lambda raw: base64.b64encode(b"abc:" + raw + b"zz").decode(),
        lambda raw: base64.urlsafe_b64encode(b"k=" + raw).decode(),
        lambda raw: raw.hex(),
        lambda raw: raw.hex().upper(),
        lambda raw: quote(raw.decode(), safe=""),
        lambda raw: quote(raw.decode()),
        lambda raw: quote_plus(raw.decode()),
        lambda raw: json.dumps({"a": raw.decode()}),
        lambda raw: json.dumps({"a": raw.decode()}, ensure_ascii=False),
        lambda raw: f"https://evil.example/?d={quote(raw.decode(), safe='')}&x=1",
    ],
)
def test_a_value_is_found_in_its_usual_encodings(encode) -> None:
    text = f"before {encode(VALUE.encode())} after"
    cleaned, found = finder(VALUE).clean(text)

    assert found == {SHOWN}
    assert SHOWN in cleaned
    assert finder(VALUE).clean(cleaned) == (cleaned, frozenset())


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=8, max_size=60).filter(lambda v: len(v.strip()) >= 8))
def test_whatever_the_value_it_is_found_between_other_words(value: str) -> None:
    cleaned, found = finder(value).clean(f"é🦞 {value} end")
    assert found
    assert value.strip() not in cleaned.replace(SHOWN, "")


@given(st.binary(min_size=6, max_size=40), st.binary(max_size=7), st.binary(max_size=7))
def test_base64_is_found_at_each_offset(raw: bytes, before: bytes, after: bytes) -> None:
    value = raw.hex()  # at least 12 characters
    assert finder(value).clean(base64.b64encode(before + value.encode() + after).decode())[1]


def test_without_values_a_text_is_returned_as_it_is() -> None:
    text = "x" * 100
    assert Leaks().clean(text)[0] is text
    assert finder("short").clean("a short word") == ("a short word", frozenset())


def test_what_is_no_secret_any_more_is_not_looked_for() -> None:
    leaks = finder("first-value-1")
    leaks.learn({"second-value-2": "${secret:TWO}"})
    assert leaks.clean("first-value-1 second-value-2")[0] == "first-value-1 ${secret:TWO}"


def test_the_longest_of_several_values_is_taken() -> None:
    leaks = Leaks()
    leaks.learn({"secret-value": "A", "secret-value-and-more": "B"})
    assert leaks.clean("secret-value-and-more secret-value")[0] == "B A"


OVERLAPPING = ("abcabcabd", "abcabdabcz", "bdabczzzz", "aaaaaaaab", "cabcabcab")


@given(st.lists(st.text("abcdz", max_size=12), max_size=12), st.lists(st.sampled_from(OVERLAPPING), max_size=4))
def test_a_text_that_grows_is_cleaned_as_the_whole_is(words: list[str], values: list[str]) -> None:
    leaks = finder(*OVERLAPPING)
    pieces = [piece for pair in zip(words, [*values, *words], strict=False) for piece in pair]
    shown, held = "", ""
    for piece in pieces:
        settled, held = leaks.split_growing(held + piece)
        shown += settled
        assert not any(value in shown for value in OVERLAPPING)
    assert shown + leaks.clean(held)[0] == leaks.clean("".join(pieces))[0]


def test_only_what_may_become_a_value_waits() -> None:
    leaks = finder("hush-hush-hush")
    assert leaks.split_growing("It is hot") == ("It is hot", "")
    assert leaks.split_growing("It is hush") == ("It is ", "hush")
    assert leaks.split_growing("hush-hush-hush.") == (f"{SHOWN}.", "")
    assert leaks.split_growing("hush-hush-husx" * 5_000 + "h") == ("hush-hush-husx" * 5_000, "h")
    assert Leaks().split_growing("hush") == ("hush", "")
