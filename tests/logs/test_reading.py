from datetime import date
from pathlib import Path

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.logs.reading import Tail, at_least, event_of, find_session
from gateway.logs.trails import gateway_trail

DAY, NEXT = date(2026, 1, 1), date(2026, 1, 2)
SESSION = "0b0c1111-1111-4111-8111-111111111111"


def add(folder: Path, day: date, text: str) -> None:
    with (folder / f"gateway-{day}.log").open("a") as file:
        file.write(text)


def test_each_look_gives_what_was_added_since_the_last(tmp_path: Path) -> None:
    tail = Tail(gateway_trail(tmp_path), DAY, lambda: DAY)

    assert list(tail.lines()) == []
    add(tmp_path, DAY, "one\ntwo\n")
    assert list(tail.lines()) == ["one", "two"]
    add(tmp_path, DAY, "thr")
    assert list(tail.lines()) == []
    add(tmp_path, DAY, "ee\nfour\n")
    assert list(tail.lines()) == ["three", "four"]


def test_over_midnight_the_end_of_the_old_day_comes_before_the_new_one(tmp_path: Path) -> None:
    today = [DAY]
    tail = Tail(gateway_trail(tmp_path), DAY, lambda: today[0])
    add(tmp_path, DAY, "one\n")
    assert list(tail.lines()) == ["one"]

    add(tmp_path, DAY, "last\n")
    add(tmp_path, NEXT, "first\n")
    today[0] = NEXT

    assert list(tail.lines()) == ["last", "first"]
    add(tmp_path, NEXT, "second\n")
    assert list(tail.lines()) == ["second"]


def test_a_session_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    (tmp_path / "sessions" / SESSION).mkdir(parents=True)
    (tmp_path / "sessions" / "0b0d1111-1111-4111-8111-111111111111").mkdir()

    assert str(find_session(tmp_path, "0B0C")) == SESSION
    with pytest.raises(OwnerMustAct, match="2 sessions begin with 0b0: "):
        find_session(tmp_path, "0b0")
    with pytest.raises(OwnerMustAct, match="`supaclaw sessions` lists them"):
        find_session(tmp_path, "ff")


@pytest.mark.parametrize("line", ["", '{"event": "to', "7", "[]"])
def test_a_torn_line_says_nothing(line: str) -> None:
    assert event_of(line) is None


def test_levels_are_ordered_and_an_unknown_one_is_never_left_out() -> None:
    shown = [
        name
        for name in ("debug", "info", "warning", "error", "critical", "odd")
        if at_least({"level": name}, "warning")
    ]

    assert shown == ["warning", "error", "critical", "odd"]
    assert at_least({}, "critical")
