"""`sort`: just-bash takes the last field for every key."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gateway.sandbox.virtual.forms import WrongForm

Compared: TypeAlias = "str | float"
_KEY = re.compile(r"(\d+)([bfnr]*)(?:,(\d+)([bfnr]*))?")
_NUMBER = re.compile(r"\s*(-?\d*\.?\d+)")


@dataclass(frozen=True, slots=True)
class Key:
    """From a field to one, both counted from 1; None: to the end of the line."""

    first: int
    last: int | None
    flags: str


def sorted_text(text: str, options: Sequence[tuple[str, str]]) -> str:
    """The lines in the order of POSIX sort in the locale C; `options` by letter, k and t with a value."""
    flags = "".join(letter for letter, _ in options if letter not in "kt")
    keys = [value for letter, value in options if letter == "k"]
    separator = dict(options).get("t")
    lines = text.splitlines()
    ordered = [*(_key(key, flags) for key in keys)] or [Key(0, None, flags)]
    if "u" not in flags:
        lines.sort(reverse="r" in flags)  # what all keys find equal
    for key in reversed(ordered):
        lines.sort(key=_value(key, separator), reverse="r" in key.flags)
    if "u" in flags:
        lines = list(_distinct(lines, ordered, separator))
    return "".join(f"{line}\n" for line in lines)


def _key(text: str, flags: str) -> Key:
    match = _KEY.fullmatch(text)
    if not match or match[1] == "0":
        raise WrongForm(f"sort: the key {text} isn't supported in bash; it is FIELD[,FIELD] with b, f, n or r behind")
    own = match[2] + (match[4] or "")
    return Key(int(match[1]), int(match[3]) if match[3] else None, own or flags)


def _value(key: Key, separator: str | None) -> Callable[[str], Compared]:
    def value(line: str) -> Compared:
        text = line if key.first == 0 else _fields(line, key, separator)
        if "n" in key.flags:
            number = _NUMBER.match(text)
            return float(number[1]) if number else 0.0
        text = text.lstrip() if "b" in key.flags else text
        return text.upper() if "f" in key.flags else text

    return value


def _fields(line: str, key: Key, separator: str | None) -> str:
    """With blanks as separators, those before a field belong to it."""
    parts = line.split(separator) if separator else re.findall(r"\s*\S+", line)
    return (separator or "").join(parts[key.first - 1 : key.last])


def _distinct(lines: Iterable[str], keys: Sequence[Key], separator: str | None) -> Iterator[str]:
    before: list[Compared] | None = None
    for line in lines:
        values = [_value(key, separator)(line) for key in keys]
        if values != before:
            yield line
        before = values
