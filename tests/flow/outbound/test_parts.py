from uuid import uuid4

from gateway.domain.channels.channel import Button
from gateway.domain.ids import FileId
from gateway.flow.outbound.parts import MAX_CAPTION, parts
from gateway.store.delivery.outbox import Part

ONE, TWO = FileId(uuid4()), FileId(uuid4())
YES = Button("Yes", "/yes")


def test_a_short_text_is_one_part() -> None:
    assert parts("hello", 100) == [Part("hello")]


def test_buttons_are_under_the_end_of_the_text_and_only_its_beginning_is_a_reply() -> None:
    made = parts("a" * 20 + "\n\n" + "b" * 20, 30, [ONE], [YES], "m7")
    assert made == [Part("a" * 20, reply_to="m7"), Part("b" * 20, buttons=(YES,)), Part("", file=ONE)]


def test_a_short_text_becomes_the_caption_of_the_first_file() -> None:
    assert parts("here", 4096, [ONE, TWO], reply_to="m7") == [Part("here", file=ONE, reply_to="m7"), Part("", file=TWO)]


def test_a_text_too_long_for_a_caption_goes_before_its_files() -> None:
    text = "x" * (MAX_CAPTION + 1)
    assert parts(text, 4096, [ONE, TWO]) == [Part(text), Part("", file=ONE), Part("", file=TWO)]


def test_a_text_with_buttons_is_no_caption_for_not_every_file_can_have_them() -> None:
    assert parts("really?", 4096, [ONE], [YES]) == [Part("really?", buttons=(YES,)), Part("", file=ONE)]


def test_a_file_needs_no_words() -> None:
    assert parts("", 4096, [ONE], reply_to="m7") == [Part("", file=ONE, reply_to="m7")]


def test_what_no_database_takes_is_left_out() -> None:
    assert parts("a\x00b\ud800", 4096) == [Part("ab?")]
