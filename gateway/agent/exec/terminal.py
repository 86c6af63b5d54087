"""The output of a command as a terminal would show it: progress bars at their end, no colours, no titles.

Codes are those of ECMA-48; the others are dropped. The screen has no right edge and is as high as most, so that a row
that has left it is final."""

import re
from dataclasses import dataclass, field

HEIGHT, MAX_PADDING = 50, 120
"""Rows that can still be changed, and columns to which a move can pad an empty row."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
    r"|(?:\x1b\[|\x9b)(?P<arguments>[0-?]{0,20})[ -/]{0,3}(?P<code>[@-~])?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]{0,3}[0-~]?"
    r"|(?P<control>.)",
    re.DOTALL,
)


def rendered(text: str) -> str:
    """The text that is left on the screen and above it; a text without control characters stays as it is."""
    if not _CONTROL.search(text):
        return text
    screen = _Screen()
    for token in _TOKEN.finditer(text):
        if token["text"]:
            screen.write(token["text"])
        elif token["control"]:
            screen.control(token["control"])
        elif token["code"]:
            screen.obey(token["code"], token["arguments"])
    while len(screen.rows) > screen.row + 1 and not screen.rows[-1]:
        screen.rows.pop()
    return "\n".join([*screen.above, *map("".join, screen.rows)])


@dataclass(slots=True)
class _Screen:
    above: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0

    def write(self, text: str) -> None:
        line = self.rows[self.row]
        line += " " * min(self.column - len(line), MAX_PADDING)
        self.column = min(self.column, len(line))
        line[self.column : self.column + len(text)] = text
        self.column += len(text)

    def control(self, char: str) -> None:
        match char:
            case "\r":
                self.column = 0
            case "\b":
                self.column = max(0, self.column - 1)
            case "\n" | "\v" | "\f":
                self.row, self.column = self.row + 1, 0
                self._scroll()

    def obey(self, code: str, arguments: str) -> None:
        numbers = [int(each) if each.isdecimal() else 0 for each in arguments.split(";")]
        count = numbers[0] or 1
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
            case "H" | "f":
                self.row = min(count, HEIGHT) - 1
                self._scroll()
                self._move_to(([*numbers, 1][1] or 1) - 1)
            case "K":
                self._erase(numbers[0])
            case "J":
                self._erase_rows(numbers[0])
            case "P":
                del self.rows[self.row][self.column : self.column + count]
        if code in "EF":
            self.column = 0

    def _move_to(self, column: int) -> None:
        self.column = min(column, max(MAX_PADDING, len(self.rows[self.row]), self.column))

    def _scroll(self) -> None:
        """Add rows down to the cursor; those that leave the screen are final."""
        self.rows += [[] for _ in range(self.row + 1 - len(self.rows))]
        while len(self.rows) > HEIGHT:
            self.above.append("".join(self.rows.pop(0)))
            self.row -= 1

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
