"""Commands that are imported when they run, so that `--help` and completion load none of them."""

import ast
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.util import find_spec
from itertools import groupby, islice
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

Run = Callable[..., object]
MAY_BE_EMPTY = "VALUE"
_OPTION = re.compile(r"--?[A-Za-z][^\s=]*(=.*)?", re.DOTALL)


def parser(about: str, commands: Iterable[str] = (), *, completion: bool = False) -> typer.Typer:
    """A command line to which these commands are added; without one named, `list` runs if there is one."""
    return typer.Typer(
        help=about,
        cls=type("Group", (CommandGroup,), {"order": tuple(commands)}),
        no_args_is_help=True,
        add_completion=completion,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


class CommandGroup(TyperGroup):
    """A group of commands, which help lists in `order`, below their headings; without one named, `list` runs."""

    order: Sequence[str] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with `list` before options that follow no command."""
        named = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, list(args) if named or "list" not in self.commands else ["list", *args])

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Write the commands of each heading, in columns that are the same for all."""
        width = max(map(len, self.order))
        lines = [(f"{name:{width}}", self.commands[name]) for name in self.order]
        for heading, rows in groupby(lines, lambda row: getattr(row[1], "rich_help_panel", None)):
            with formatter.section(heading or "Commands"):
                formatter.write_dl([(name, one.get_short_help_str(formatter.width - 6 - width)) for name, one in rows])


class LazyCommand(TyperCommand):
    """A command whose callback returns the function that it stands for, its `target`."""

    target = ""

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of the function's docstring; only a list of commands reads its module."""
        self.help = summary(self.target)
        return super().get_short_help_str(limit)

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        """The context of the command that is made of the loaded function."""
        assert self.callback is not None, "each command has one"
        app = parser("")
        app.command(self.name)(self.callback())
        command = typer.main.get_command(app)
        valued = {name for each in command.params if not getattr(each, "is_flag", True) for name in each.opts}
        try:
            context: Any = command.make_context(info_name, texts_last(args, valued), *rest, **extra)
        except typer.BadParameter as error:
            from gateway.config.problems import requirement

            error.message = requirement(error.__cause__) or error.message
            raise
        for each in command.params:
            if isinstance(each, TyperArgument) and each.metavar != MAY_BE_EMPTY:
                _require_words(context, each)
        return context


def _require_words(context: Any, argument: TyperArgument) -> None:
    value = context.params[argument.name]
    texts = value if isinstance(value, list) else [value]
    if value != argument.default and any(isinstance(text, str) and not text.strip() for text in texts):
        raise typer.BadParameter("must not be empty", context, argument)


def texts_last(arguments: Sequence[str], valued: Collection[str]) -> list[str]:
    """The arguments with `--` before texts such as `-5 °C` or `- milk`, which aren't options.

    `valued` are the options that take the argument after them.
    """
    options: list[str] = []
    texts: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            texts += remaining
        elif _OPTION.fullmatch(argument) or argument[:2] in valued:
            options += [argument, *(islice(remaining, 1) if argument in valued else ())]
        else:
            texts.append(argument)
    return [*options, "--", *texts] if any(text.startswith("-") and text != "-" for text in texts) else list(arguments)


def deferred(target: str) -> Callable[[], Run]:
    """A function that imports `module:function` and returns that function."""
    module, _, name = target.partition(":")

    def load() -> Run:
        run: Run = getattr(import_module(_full_name(module)), name)
        return run

    return load


def summary(target: str) -> str:
    """The docstring of `module:function`, read without running its module."""
    module, _, name = target.partition(":")
    spec = find_spec(_full_name(module))
    assert spec is not None, module
    assert isinstance(spec.loader, SourceLoader), module
    body = ast.parse(spec.loader.get_data(spec.origin or "")).body
    (found,) = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == name)
    return ast.get_docstring(found) or ""


def _full_name(module: str) -> str:
    return module if module.startswith("integrations.") else f"gateway.cli.{module}"
