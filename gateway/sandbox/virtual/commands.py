"""The commands of the virtual shell: those of just-bash in their measured forms, `sort` and `curl` of our own."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from just_bash import Command, CommandContext, ExecResult
from just_bash.commands import create_command_registry

from gateway.sandbox.virtual.forms import FORMS, WrongForm, arguments_of
from gateway.sandbox.virtual.sorting import sorted_text

_QUIET = frozenset({"-s", "-S", "-f", "-L", "-sS", "-fsS", "-sL", "-fsSL", "--silent"})
"""Options of curl that change nothing here."""
MISSING = ("python3", "python", "node", "git", "perl", "wget", "trap", "sqlite3")


def commands(pages: Mapping[str, bytes], refused: list[str]) -> dict[str, Command]:
    """By name; a command or form that isn't offered fails and is noted in `refused`: a pipeline drops its message."""
    theirs = create_command_registry()
    ours: dict[str, Command] = {name: Missing(name, refused) for name in [*theirs, *MISSING]}
    ours |= {name: Measured(name, theirs[name], refused) for name in FORMS}
    return {
        **ours,
        "sort": Measured("sort", Sort(), refused),
        "xargs": Measured("xargs", Xargs(), refused),
        "curl": Curl(pages),
    }


@dataclass(slots=True)
class Missing:
    """A command that isn't there, or is wrong."""

    name: str
    refused: list[str]

    async def execute(self, _args: list[str], _ctx: CommandContext) -> ExecResult:
        """Fail as an unknown command does."""
        self.refused.append(f"{self.name}: not available in bash")
        return ExecResult("", "", 127)


@dataclass(slots=True)
class Measured:
    """A command in the forms that were measured."""

    name: str
    command: Command
    refused: list[str]

    async def execute(self, args: list[str], ctx: CommandContext) -> ExecResult:
        """Run it, unless it is given in another form."""
        try:
            given = arguments_of(self.name, args)
            result = await self.command.execute(given, ctx)
        except WrongForm as error:
            self.refused.append(str(error))
            return ExecResult("", "", 2)
        if self.name == "grep" and "-o" in given:  # it prints what matches nothing, too
            return replace(
                result, stdout="".join(line for line in result.stdout.splitlines(keepends=True) if line.strip("\n"))
            )
        return result


@dataclass(slots=True)
class Sort:
    """Of files, or of what is piped in; by POSIX's rules in the locale C."""

    name: str = "sort"

    async def execute(self, args: list[str], ctx: CommandContext) -> ExecResult:
        """The arguments are as `forms.arguments_of` returns them; raises `WrongForm`."""
        options, names = _options(self.name, args)
        try:
            texts = [await ctx.fs.read_file(_path(name, ctx)) for name in names]
        except OSError as error:
            return _failed(self.name, str(error), 2)
        return ExecResult(sorted_text("".join(map(_ended, texts)) if texts else ctx.stdin, options), "", 0)


@dataclass(slots=True)
class Xargs:
    """Runs a command on what is piped in; just-bash's own quotes too little."""

    name: str = "xargs"

    async def execute(self, args: list[str], ctx: CommandContext) -> ExecResult:
        """The arguments are as `forms.arguments_of` returns them."""
        given, command = _options(self.name, args)
        options = dict(given)
        calls = _calls(options, command or ["echo"], _items(options, ctx.stdin))
        assert ctx.exec is not None, "the shell gives it"
        results = [await ctx.exec(shlex.join(call), {"cwd": ctx.cwd}) for call in calls]
        code = 123 if any(result.exit_code for result in results) else 0
        return ExecResult("".join(r.stdout for r in results), "".join(r.stderr for r in results), code)


@dataclass(slots=True)
class Curl:
    """Of pages that were fetched before the script began: there is no network here."""

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
    """The options that come first, each by its letter with its value, if it takes one; and what follows."""
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
