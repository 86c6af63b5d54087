import io

import pytest

from gateway.logs.readable import Readable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("key", ["event", "logger", "fact", "level", "timestamp", "exception"])
def test_nothing_in_a_line_can_move_the_cursor(key: str) -> None:
    event = {"timestamp": "t", "level": "info", "event": "x"} | {key: "\x1b[2Jgone\x9b1m\r\u202e"}

    assert all(char.isprintable() or char == "\n" for char in Readable(io.StringIO()).line(event))


def test_a_fact_cannot_forge_a_line_but_a_traceback_has_its_own() -> None:
    line = Readable(io.StringIO()).line({"event": "a\nb", "fact": "c\nd", "exception": "e\nf"})

    assert line.splitlines() == ["a\\nb                           fact='c\\nd'", "e", "f"]


def test_only_a_terminal_that_wants_colours_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"level": "info", "event": "x"}
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" in Readable(Terminal()).line(event)
    assert "\x1b" not in Readable(io.StringIO()).line(event)

    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in Readable(Terminal()).line(event)
