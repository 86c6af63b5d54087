"""Commands that are imported when they run, so that `--help` and completion need none of what they need."""

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperCommand

Run = Callable[..., object]


def parser(about: str) -> typer.Typer:
    """A command line without commands."""
    return typer.Typer(
        help=about,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


class LazyCommand(TyperCommand):
    """A command whose callback returns the function that it stands for."""

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        """The context of the function's own command, which takes this one's place."""
        assert self.callback is not None, "each command has one"
        app = parser("")
        app.command(self.name)(self.callback())
        return typer.main.get_command(app).make_context(*arguments, **extra)


def deferred(target: str) -> Callable[[], Run]:
    """A function that imports `module:function` and returns it."""
    module, _, name = target.partition(":")

    def load() -> Run:
        run: Run = getattr(import_module(f"gateway.cli.{module}"), name)
        return run

    return load


def summary(target: str) -> str:
    """The docstring of `module:function`, read without running its module."""
    module, _, name = target.partition(":")
    spec = find_spec(f"gateway.cli.{module}")
    assert spec is not None, module
    assert isinstance(spec.loader, SourceLoader), module
    body = ast.parse(spec.loader.get_data(spec.origin or "")).body
    (found,) = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == name)
    return ast.get_docstring(found) or ""
