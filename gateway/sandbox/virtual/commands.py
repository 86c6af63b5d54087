"""The commands of the virtual shell: those of just-bash in the forms in which they behave as the real ones do, and
`sort`, `xargs` and `curl` of our own. Every other form is an error, never a guess.

Measured by `tests/sandbox/virtual/test_corpus.py`. awk, jq, tar, date, diff and others give wrong results without a
message, and so do some forms of the rest: `sed -E` ignores case. Two differences of the language remain: the last
command of a pipeline runs in the same shell, as with `shopt -s lastpipe`, and `declare -i` has no effect."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from just_bash import Command, CommandContext, ExecResult
from just_bash.commands import create_command_registry


@dataclass(frozen=True, slots=True)
class CommandForm:
    """The options, of one letter; those in `valued` take a value. `words`: arguments may look like options."""

    plain: str = ""
    valued: str = ""
    words: bool = False


_PLAIN = ("basename", "dirname", "false", "md5sum", "mv", "nl", "pwd", "rev", "sha256sum", "tac", "touch", "true")
_WITH_WORDS = ("echo", "expr", "find", "printf", "read", "seq")
FORMS: Mapping[str, CommandForm] = {
    **dict.fromkeys(_PLAIN, CommandForm()),
    **dict.fromkeys(_WITH_WORDS, CommandForm(words=True)),
    "base64": CommandForm("d"),
    "cat": CommandForm("n"),
    "cp": CommandForm("r"),
    "cut": CommandForm("s", "dfc"),
    "grep": CommandForm("EFchinoqrvwx", "eABCm"),
    "head": CommandForm("", "nc"),
    "ls": CommandForm("1"),
    "mkdir": CommandForm("p"),
    "paste": CommandForm("", "d"),
    "rm": CommandForm("rf"),
    "sed": CommandForm("ni", "e"),
    "sort": CommandForm("bfnru", "kt"),
    "tail": CommandForm("", "n"),
    "tee": CommandForm("a"),
    "tr": CommandForm("ds"),
    "uniq": CommandForm("cdu"),
    "wc": CommandForm("clw"),
    "xargs": CommandForm("0r", "nI"),
}
_NUMBERED_SUBSTITUTION = re.compile(r"s(.)(?:(?!\1).)*\1(?:(?!\1).)*\1[a-zA-Z]*\d")
_FIND_OPTIONS = frozenset({"-name", "-iname", "-type", "-maxdepth", "-mindepth", "-path", "-not", "!", "-o", "-empty"})


class WrongForm(Exception):
    """A form that isn't supported; the text names it."""


def split_arguments(command: str, given: Sequence[str]) -> list[str]:
    """The arguments with options split, one letter each, and placed first; raises `WrongForm`."""
    form = FORMS[command]
    if form.words:
        for word in given if command == "find" else ():
            if word.startswith("-") and word not in _FIND_OPTIONS:
                raise WrongForm(f"find: {word} isn't supported in bash")
        return list(given)
    options: list[str] = []
    rest = list(given)
    others: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == "--":
            others += rest
            break
        if word == "-" or not word.startswith("-"):
            others.append(word)
            if command == "xargs":  # what follows is a command of its own
                others += rest
                break
        elif word.startswith("-") and word[1:].isdigit() and command in ("head", "tail"):
            options += ["-n", word[1:]]
        else:
            options += _split_option(command, word, form, rest)
    if command == "grep" and {"-o", "-n"} <= {*options}:
        raise WrongForm("grep: -o with -n isn't supported in bash")
    if command == "sed" and any(_NUMBERED_SUBSTITUTION.search(word) for word in (*options, *others)):
        raise WrongForm("sed: a number after s/// isn't supported in bash")
    return options + others


def _split_option(command: str, word: str, form: CommandForm, rest: list[str]) -> list[str]:
    options = []
    for place, letter in enumerate(word[1:], 2):
        if letter in form.plain:
            options.append(f"-{letter}")
        elif letter in form.valued:
            value = word[place:] or (rest.pop(0) if rest else None)
            if value is None:
                raise WrongForm(f"{command}: -{letter} needs a value")
            return [*options, f"-{letter}", value]
        else:
            raise WrongForm(f"{command}: the option {word} isn't supported in bash")
    return options


Compared: TypeAlias = "str | float"
_SORT_KEY = re.compile(r"(\d+)([bfnr]*)(?:,(\d+)([bfnr]*))?")
_NUMBER = re.compile(r"\s*(-?\d*\.?\d+)")


@dataclass(frozen=True, slots=True)
class SortKey:
    """A range of fields, counted from 1; `last` None: to the end of the line."""

    first: int
    last: int | None
    flags: str


def sorted_text(text: str, options: Sequence[tuple[str, str]]) -> str:
    """The lines in the order of POSIX sort in the locale C; `options` by letter, k and t with a value."""
    flags = "".join(letter for letter, _ in options if letter not in "kt")
    keys = [value for letter, value in options if letter == "k"]
    separator = dict(options).get("t")
    lines = text.splitlines()
    ordered = [*(_parse_key(key, flags) for key in keys)] or [SortKey(0, None, flags)]
    if "u" not in flags:
        lines.sort(reverse="r" in flags)  # the order of lines that are equal by all keys
    for key in reversed(ordered):
        lines.sort(key=_comparison(key, separator), reverse="r" in key.flags)
    if "u" in flags:
        lines = list(_distinct(lines, ordered, separator))
    return "".join(f"{line}\n" for line in lines)


def _parse_key(text: str, flags: str) -> SortKey:
    match = _SORT_KEY.fullmatch(text)
    if not match or match[1] == "0":
        raise WrongForm(f"sort: the key {text} isn't supported in bash; it is FIELD[,FIELD] with b, f, n or r behind")
    return SortKey(int(match[1]), int(match[3]) if match[3] else None, match[2] + (match[4] or "") or flags)


def _comparison(key: SortKey, separator: str | None) -> Callable[[str], Compared]:
    def value(line: str) -> Compared:
        text = line if key.first == 0 else _fields(line, key, separator)
        if "n" in key.flags:
            number = _NUMBER.match(text)
            return float(number[1]) if number else 0.0
        text = text.lstrip() if "b" in key.flags else text
        return text.upper() if "f" in key.flags else text

    return value


def _fields(line: str, key: SortKey, separator: str | None) -> str:
    """The key's fields; if blanks separate them, those before a field belong to it."""
    parts = line.split(separator) if separator else re.findall(r"\s*\S+", line)
    return (separator or "").join(parts[key.first - 1 : key.last])


def _distinct(lines: Iterable[str], keys: Sequence[SortKey], separator: str | None) -> Iterator[str]:
    before: list[Compared] | None = None
    for line in lines:
        values = [_comparison(key, separator)(line) for key in keys]
        if values != before:
            yield line
        before = values


_QUIET = frozenset({"-s", "-S", "-f", "-L", "-sS", "-fsS", "-sL", "-fsSL", "--silent"})
"""Options of curl that have no effect here."""
MISSING = ("python3", "python", "node", "git", "perl", "wget", "trap", "sqlite3")


def commands(pages: Mapping[str, bytes], refused: list[str]) -> dict[str, Command]:
    """All commands by name; an unsupported one fails and is noted in `refused`, since a pipeline drops its message."""
    theirs = create_command_registry()
    ours: dict[str, Command] = {name: MissingCommand(name, refused) for name in [*theirs, *MISSING]}
    measured = {name: theirs[name] for name in FORMS} | {"sort": Sort(), "xargs": Xargs()}
    ours |= {name: MeasuredCommand(name, command, refused) for name, command in measured.items()}
    return {**ours, "curl": Curl(pages)}


@dataclass(slots=True)
class MissingCommand:
    """A command that is missing, or whose results would be wrong."""

    name: str
    refused: list[str]

    async def execute(self, _args: list[str], _ctx: CommandContext) -> ExecResult:
        """Fail like an unknown command."""
        self.refused.append(f"{self.name}: not available in bash")
        return ExecResult("", "", 127)


@dataclass(slots=True)
class MeasuredCommand:
    """A command, in the forms that were tested."""

    name: str
    command: Command
    refused: list[str]

    async def execute(self, args: list[str], ctx: CommandContext) -> ExecResult:
        """Run it, unless the form is another one."""
        try:
            given = split_arguments(self.name, args)
            result = await self.command.execute(given, ctx)
        except WrongForm as error:
            self.refused.append(str(error))
            return ExecResult("", "", 2)
        if self.name == "grep" and "-o" in given:  # it also prints empty matches
            return replace(
                result, stdout="".join(line for line in result.stdout.splitlines(keepends=True) if line.strip("\n"))
            )
        return result


@dataclass(slots=True)
class Sort:
    """Sorts files or standard input by POSIX's rules in the locale C."""

    name: str = "sort"

    async def execute(self, args: list[str], ctx: CommandContext) -> ExecResult:
        """Sort; takes arguments from `split_arguments`, and raises `WrongForm`."""
        options, names = _options(self.name, args)
        try:
            texts = [await ctx.fs.read_file(_path(name, ctx)) for name in names]
        except OSError as error:
            return _failed(self.name, str(error), 2)
        return ExecResult(sorted_text("".join(map(_ended, texts)) if texts else ctx.stdin, options), "", 0)


@dataclass(slots=True)
class Xargs:
    """Runs a command on the items of standard input; just-bash's own quotes too little."""

    name: str = "xargs"

    async def execute(self, args: list[str], ctx: CommandContext) -> ExecResult:
        """Run the command; takes arguments from `split_arguments`."""
        given, command = _options(self.name, args)
        options = dict(given)
        calls = _calls(options, command or ["echo"], _items(options, ctx.stdin))
        assert ctx.exec is not None, "the shell gives it"
        results = [await ctx.exec(shlex.join(call), {"cwd": ctx.cwd}) for call in calls]
        code = 123 if any(result.exit_code for result in results) else 0
        return ExecResult("".join(r.stdout for r in results), "".join(r.stderr for r in results), code)


@dataclass(slots=True)
class Curl:
    """Gives pages that were fetched before the script began: it has no network."""

    pages: Mapping[str, bytes]
    name: str = "curl"

    async def execute(self, args: list[str], ctx: CommandContext) -> ExecResult:
        """Write a page to standard output, or to the file after -o."""
        words, target = [word for word in args if word not in _QUIET], ""
        if "-o" in words[:-1]:
            target = words.pop(words.index("-o") + 1)
            words.remove("-o")
        if len(words) != 1 or words[0].startswith("-"):
            return _failed(self.name, "use it as curl [-s] [-o FILE] URL", 2)
        if (body := self.pages.get(words[0])) is None:
            return _failed(self.name, f"(6) {words[0][:200]} isn't among `urls` of this call", 6)
        if not target:
            return ExecResult(body.decode("utf-8", "replace"), "", 0)
        await ctx.fs.write_file(_path(target, ctx), body)
        return ExecResult("", "", 0)


def _options(command: str, given: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The leading options, each by its letter with its value or "", and the remaining arguments."""
    options, rest = list[tuple[str, str]](), list(given)
    while rest and re.fullmatch("-[^-]", rest[0]):
        letter = rest.pop(0)[1]
        options.append((letter, rest.pop(0) if letter in FORMS[command].valued else ""))
    return options, rest


def _items(options: Mapping[str, str], text: str) -> list[str]:
    items = text.split("\0") if "0" in options else text.splitlines() if "I" in options else text.split()
    return [item for item in items if item]


def _calls(options: Mapping[str, str], command: Sequence[str], items: Sequence[str]) -> list[list[str]]:
    if mark := options.get("I"):
        return [[word.replace(mark, item.lstrip()) for word in command] for item in items]
    if not items and "r" in options:
        return []
    size = int(options.get("n", "0")) or max(1, len(items))
    return [[*command, *items[at : at + size]] for at in range(0, max(1, len(items)), size)]


def _path(name: str, ctx: CommandContext) -> str:
    return ctx.fs.resolve_path(ctx.cwd, name)


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _failed(name: str, text: str, code: int) -> ExecResult:
    return ExecResult("", f"{name}: {text}\n", code)
