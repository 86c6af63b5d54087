"""The commands of the virtual shell: those of just-bash in their measured forms, `sort` and `curl` of our own."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from just_bash import Command, CommandContext, ExecResult
from just_bash.commands import create_command_registry

from gateway.sandbox.virtual.forms import FORMS, WrongForm, arguments_of
from gateway.sandbox.virtual.sorting import sorted_text

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
        options = _options(args, FORMS[self.name].valued)
        try:
            texts = [await ctx.fs.read_file(_path(name, ctx)) for name in args[len(options) :]]
        except OSError as error:
            return _failed(self.name, str(error), 2)
        return ExecResult(sorted_text("".join(map(_ended, texts)) if texts else ctx.stdin, options), "", 0)


@dataclass(slots=True)
class Xargs:
    """Runs a command on what is piped in; just-bash's own quotes too little."""

    name: str = "xargs"

    async def execute(self, args: list[str], ctx: CommandContext) -> ExecResult:
        """The arguments are as `forms.arguments_of` returns them."""
        options = _options(args, FORMS[self.name].valued)
        values = dict(pairwise(options))
        command, mark, few = args[len(options) :] or ["echo"], values.get("-I"), int(values.get("-n", "0"))
        items = ctx.stdin.split("\0") if "-0" in options else ctx.stdin.splitlines() if mark else ctx.stdin.split()
        items = [item for item in items if item]
        if mark:
            calls = [[word.replace(mark, item.lstrip()) for word in command] for item in items]
        elif items or "-r" not in options:
            size = few or max(1, len(items))
            calls = [[*command, *items[at : at + size]] for at in range(0, max(1, len(items)), size)]
        else:
            calls = []
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
        words = [
            word for word in args if word not in ("-s", "-S", "-f", "-L", "-sS", "-fsS", "-sL", "-fsSL", "--silent")
        ]
        target = (
            words.pop(at + 1) if (at := words.index("-o") if "-o" in words else -1) >= 0 and at + 1 < len(words) else ""
        )
        urls = [word for word in words if word != "-o"]
        if len(urls) != 1 or urls[0].startswith("-"):
            return _failed(self.name, "use it as curl [-s] [-o FILE] URL", 2)
        if (body := self.pages.get(urls[0])) is None:
            return _failed(self.name, f"(6) {urls[0][:200]} isn't among `urls` of this call", 6)
        if not target:
            return ExecResult(body.decode("utf-8", "replace"), "", 0)
        await ctx.fs.write_file(_path(target, ctx), body)
        return ExecResult("", "", 0)


def _options(given: list[str], valued: str) -> list[str]:
    end = 0
    while end < len(given) and re.fullmatch("-[^-]", given[end]):
        end += 2 if given[end][1] in valued else 1
    return given[:end]


def _path(name: str, ctx: CommandContext) -> str:
    return ctx.fs.resolve_path(ctx.cwd, name)


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _failed(name: str, text: str, code: int) -> ExecResult:
    return ExecResult("", f"{name}: {text}\n", code)
