"""The output of a command as a terminal would show it: progress bars at their end, no colours, no titles; and the
screen of a program that fills one.

Codes are those of ECMA-48 and of Linux's console; the others are dropped. Output that is only read has no right edge
and a screen that is as high as most, so that a row that has left it is final."""

import re
import sys
from dataclasses import dataclass, field

HEIGHT, MAX_PADDING = 50, 120
"""Rows that can still be changed, and columns to which a move can pad an empty row; of a screen, the most."""
NAME = "linux"
"""The terminal in the table of terminals."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
    r"|(?:\x1b\[|\x9b)(?P<arguments>[0-?]{0,20})[ -/]{0,3}(?P<code>[@-~])?"
    r"|(?:\x1b[\]PX^_k]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b(?:[ -/]{1,3}[0-~]?|(?P<escape>[0-~])?)"
    r"|(?P<control>.)",
    re.DOTALL,
)
_CUT = re.compile(r"\x1b(?:\[[0-?]{0,20}[ -/]{0,3}|[\]PX^_k][^\x07\x1b\x9c\n]{0,1000}|[ -/]{0,3})\Z")


def rendered(text: str) -> str:
    """The text that is left on the screen and above it; a text without control characters stays as it is."""
    if not _CONTROL.search(text):
        return text
    screen = Screen()
    screen.feed(text)
    while len(screen.rows) > screen.row + 1 and not screen.rows[-1]:
        screen.rows.pop()
    return "\n".join([*screen.above, *map("".join, screen.rows)])


@dataclass(slots=True)
class Screen:
    """With `columns`, the screen of a terminal of this size; else output that scrolls on, with what is above it."""

    height: int = HEIGHT
    columns: int = sys.maxsize
    above: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    _margins: tuple[int, int] = field(init=False)
    """The first and the last of the rows that scroll."""
    _saved: tuple[int, int] = (0, 0)
    _inserts: bool = False
    _rest: str = ""
    """A code whose end hasn't come yet."""

    def __post_init__(self) -> None:
        self._margins = 0, self.height - 1
        self._fill()

    @property
    def is_terminal(self) -> bool:
        """Whether it has a right edge."""
        return self.columns < sys.maxsize

    @property
    def text(self) -> str:
        """The rows, without what is blank at their ends."""
        return "\n".join("".join(line).rstrip() for line in self.rows).rstrip()

    def feed(self, text: str) -> None:
        """Write output, with the codes in it."""
        text = self._rest + text
        self._rest = cut[0] if self.is_terminal and (cut := _CUT.search(text)) else ""
        for token in _TOKEN.finditer(text, 0, len(text) - len(self._rest)):
            if token["text"]:
                self._write(token["text"])
            elif token["control"] or token["escape"]:
                self._control(token["control"] or token["escape"])
            elif token["code"]:
                self._obey(token["code"], token["arguments"])

    def _write(self, text: str) -> None:
        before, *cells = text.split("\t") if self.is_terminal else [text]
        self._put(before)
        for each in cells:
            self._move_to((self.column // 8 + 1) * 8)
            self._put(each)

    def _put(self, text: str) -> None:
        while text:
            if self.column >= self.columns:
                self.column = 0
                self._feed_line()
            room, line = self.columns - self.column, self.rows[self.row]
            piece, text = text[:room], text[room:]
            line += " " * min(self.column - len(line), MAX_PADDING)
            self.column = min(self.column, len(line))
            line[self.column : self.column + (0 if self._inserts else len(piece))] = piece
            del line[self.columns :]
            self.column += len(piece)

    def _control(self, char: str) -> None:
        match char:
            case "\r":
                self.column = 0
            case "\b":
                self.column = max(0, self.column - 1)
            case "\n" | "\v" | "\f" | "D" | "E":
                self.column = self.column if self.is_terminal and char != "E" else 0
                self._feed_line()
            case "M" if self.row == self._margins[0]:
                self._scroll(self.row, -1)
            case "M":
                self.row = max(0, self.row - 1)
            case "7":
                self._saved = self.row, self.column
            case "8":
                self.row, self.column = self._saved
                self._fill()

    def _obey(self, code: str, arguments: str) -> None:
        numbers = [int(each) if each.isdecimal() else 0 for each in arguments.split(";")]
        count, second = numbers[0] or 1, [*numbers, 0][1]
        match code:
            case "h" | "l" if arguments in ("?1049", "?47"):  # the other screen
                self._erase_rows(2)
            case _ if arguments[:1] in {"<", "=", ">", "?"}:
                pass  # of one make of terminals
            case "K":
                self._erase(numbers[0])
            case "J":
                self._erase_rows(numbers[0])
            case "r" if self.is_terminal and count < (bottom := min(second or self.height, self.height)):
                self._margins, self.row, self.column = (count - 1, bottom - 1), 0, 0
            case "h" | "l" if arguments == "4":
                self._inserts = code == "h"
            case "L" | "M":
                self._scroll(self.row, count if code == "M" else -count)
            case "P" | "@" | "X":
                self._change(code, count)
            case _:
                self._move(code, count, second or 1)

    def _move(self, code: str, count: int, second: int) -> None:
        match code:
            case "A" | "F":
                self.row = max(0, self.row - count)
            case "B" | "E":
                self.row = min(self.row + count, len(self.rows) - 1)
            case "C":
                self._move_to(self.column + count)
            case "D":
                self.column = max(0, self.column - count)
            case "G" | "`":
                self._move_to(count - 1)
            case "H" | "f" | "d":
                self.row = min(count, self.height) - 1
                self._fill()
                self._move_to(self.column if code == "d" else second - 1)
        if code in "EF":
            self.column = 0

    def _change(self, code: str, count: int) -> None:
        line = self.rows[self.row]
        match code:
            case "P":
                del line[self.column : self.column + count]
            case "@":
                line[self.column : self.column] = " " * min(count, MAX_PADDING)
                del line[self.columns :]
            case _:
                line[self.column : self.column + count] = " " * min(count, len(line) - self.column)

    def _move_to(self, column: int) -> None:
        self.column = min(column, max(MAX_PADDING, len(self.rows[self.row]), self.column), self.columns - 1)

    def _fill(self) -> None:
        """Add rows down to the cursor, or to the end of the screen."""
        self.rows += [[] for _ in range((self.height if self.is_terminal else self.row + 1) - len(self.rows))]

    def _feed_line(self) -> None:
        """Go down a row; of output that scrolls on, a row that leaves the screen is final."""
        top, bottom = self._margins
        if self.row == bottom:
            if not self.is_terminal:
                self.above.append("".join(self.rows[top]))
            self._scroll(top, 1)
        else:
            self.row = min(self.row + 1, self.height - 1)
            self._fill()

    def _scroll(self, top: int, count: int) -> None:
        """Move the rows from `top` to the margin up, or down if `count` is negative."""
        bottom = self._margins[1]
        if top <= bottom < len(self.rows):
            for _ in range(min(abs(count), self.height)):
                self.rows.insert(bottom if count > 0 else top, self.rows.pop(top if count > 0 else bottom))
                self.rows[bottom if count > 0 else top] = []

    def _erase(self, mode: int) -> None:
        line = self.rows[self.row]
        match mode:
            case 0:
                del line[self.column :]
            case 1 if self.column < len(line):
                line[: min(self.column + 1, 10 * MAX_PADDING)] = " " * min(self.column + 1, 10 * MAX_PADDING)
            case _:
                line.clear()

    def _erase_rows(self, mode: int) -> None:
        if mode == 0:
            self._erase(0)
            del self.rows[self.row + 1 :]
        elif mode in (2, 3):
            self.rows = [[] for _ in range(self.row + 1)]
        self._fill()
