import io
from datetime import date
from pathlib import Path

import pytest

from gateway.logs.files import gateway_trail
from gateway.logs.lines import at_least, event_of, looks, readable

DAY, NEXT = date(2026, 1, 1), date(2026, 1, 2)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("key", ["event", "logger", "fact", "level", "timestamp", "exception"])
def test_nothing_in_a_line_can_move_the_cursor(key: str) -> None:
    event = {"timestamp": "t", "level": "info", "event": "x"} | {key: "\x1b[2Jgone\x9b1m\r\u202e"}

    assert all(char.isprintable() or char == "\n" for char in readable(io.StringIO())(event))


def test_a_fact_cannot_forge_a_line_but_a_traceback_has_its_own() -> None:
    line = readable(io.StringIO())({"event": "a\nb", "fact": "c\nd", "exception": "e\nf"})

    assert line.splitlines() == ["a\\nb                           fact=c\\nd", "e", "f"]


def test_only_a_terminal_that_wants_colours_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"level": "info", "event": "x"}
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" in readable(Terminal())(event)
    assert "\x1b" not in readable(io.StringIO())(event)

    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in readable(Terminal())(event)


def add(folder: Path, day: date, text: str) -> None:
    with (folder / f"gateway-{day}.log").open("a") as file:
        file.write(text)


def test_each_look_gives_what_was_added_since_the_last(tmp_path: Path) -> None:
    look = looks(gateway_trail(tmp_path), DAY, lambda: DAY)

    assert next(look) == []
    add(tmp_path, DAY, "one\ntwo\n")
    assert next(look) == ["one", "two"]
    add(tmp_path, DAY, "thr")
    assert next(look) == []
    add(tmp_path, DAY, "ee\nfour\n")
    assert next(look) == ["three", "four"]


def test_over_midnight_the_end_of_the_old_day_comes_before_the_new_one(tmp_path: Path) -> None:
    today = [DAY]
    look = looks(gateway_trail(tmp_path), DAY, lambda: today[0])
    add(tmp_path, DAY, "one\n")
    assert next(look) == ["one"]

    add(tmp_path, DAY, "last\n")
    add(tmp_path, NEXT, "first\n")
    today[0] = NEXT

    assert next(look) + next(look) == ["last", "first"]
    add(tmp_path, NEXT, "second\n")
    assert next(look) == ["second"]


@pytest.mark.parametrize("line", ["", '{"event": "to', "7", "[]"])
def test_a_torn_line_is_only_its_text_and_never_left_out(line: str) -> None:
    assert event_of(line) == {"event": line}
    assert at_least(event_of(line), "critical")


def test_levels_are_ordered_and_an_unknown_one_is_never_left_out() -> None:
    shown = [
        name
        for name in ("debug", "info", "warning", "error", "critical", "odd")
        if at_least({"level": name}, "warning")
    ]

    assert shown == ["warning", "error", "critical", "odd"]
    assert at_least({}, "critical")
