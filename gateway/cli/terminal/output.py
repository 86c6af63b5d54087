"""Command output and questions: JSON for programs, tables for people, without secrets; options that commands share."""

import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from gateway.agent.limits import dollars
from gateway.cli.terminal.console import copy_out, echo
from gateway.domain.errors import OwnerMustAct, SupaclawError
from gateway.domain.text.texts import json_text, printable, size_text
from gateway.domain.time import clock_text
from gateway.logs import SecretMask

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_IN_BYTES = frozenset({"size", "used", "ceiling"})
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)")
UNWRAPPED_WIDTH = 10_000
"""Columns when stdout is not a terminal, so that programs read one row per line."""


def argument(about: str, metavar: str, **rules: Any) -> Any:
    """An argument of a command; `about` is its help text."""
    return typer.Argument(metavar=metavar, help=about, **rules)


def option(about: str, metavar: str | None = None, *names: str, **rules: Any) -> Any:
    """An option with a value; without `names` it has the name of the parameter."""
    return typer.Option(*names, metavar=metavar, help=about, **rules)


def flag(about: str, *names: str) -> Any:
    """An option that is on or off."""
    return typer.Option(*names, help=about)


AsJson = Annotated[bool, flag("Print JSON.", "--json")]
Limit = Annotated[int, option("How many at most.", "N", min=1)]
Output = Annotated[str, option("Where to write it; - is standard output.", "PATH", "--output", "-o")]
Timeout = Annotated[float, option("How long to wait.", "SECONDS")]
Yes = Annotated[bool, flag("Don't ask for confirmation.", "--yes")]


def print_json(value: object) -> None:
    """Print `value` as indented JSON, with secrets masked."""
    echo(json_text(SecretMask().value(value), indent=2))


def print_result(value: object, text: str, *, as_json: bool) -> None:
    """Print `value` as JSON for programs, or `text` for people."""
    print_json(value) if as_json else echo(text)


def print_rows(
    rows: Sequence["DataclassInstance | Mapping[str, object]"],
    columns: Sequence[str],
    *,
    as_json: bool,
    none: str = "Nothing here yet.",
) -> None:
    """Print rows: all fields as JSON, or the named columns as a table; without rows, people get the text `none`."""
    facts = [row if isinstance(row, Mapping) else facts_of(row) for row in rows]
    if as_json:
        print_json(facts)
    elif not facts:
        echo(none)
    else:
        _print_table(facts, columns)


def facts_of(row: "DataclassInstance") -> Mapping[str, object]:
    """The fields of a row, by name."""
    return {field.name: getattr(row, field.name) for field in fields(row)}


def save_copy(file: BinaryIO, output: str, name: str) -> None:
    """Write `file` to `output`: a new file, a folder, or - for standard output; raises `OwnerMustAct`."""
    if output == "-":
        copy_out(file)
        return
    to = Path(output) / name if Path(output).is_dir() else Path(output)
    try:
        with to.open("xb") as copy:
            shutil.copyfileobj(file, copy)
    except FileExistsError:
        raise OwnerMustAct(f"{to} already exists; choose another name with --output") from None
    except OSError as error:
        raise OwnerMustAct(f"{to} cannot be written: {error.strerror}") from None
    echo(to)


def _print_table(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(heading(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(shown(column, row[column]), keep="")) for column in columns))
    Console(width=None if sys.stdout.isatty() else UNWRAPPED_WIDTH).print(table)


def heading(name: str) -> str:
    """The name of a field as people read it."""
    return name.removesuffix("_usd").removesuffix("_at").replace("_", " ")


def shown(name: str, value: object) -> str:
    """A value as people read it: `name` says whether a number is an amount of money or of bytes."""
    match value:
        case None | False:
            return ""
        case True:
            return "yes"
        case int() if name in _IN_BYTES:
            return size_text(value)
        case float():
            return dollars(value) if name.endswith("_usd") else f"{round(value, 3):.15g}"
        case datetime():
            return clock_text(value)
        case str() if _ISO_TIME.fullmatch(value):
            return clock_text(datetime.fromisoformat(value))
        case list() | tuple() | frozenset():
            return ", ".join(sorted(map(str, value)))
        case _:
            return str(value)


def confirm(question: str) -> None:
    """Ask on stderr, so that piped output holds no question, and end the command unless the answer is yes."""
    if not ask_yes_or_no(question):
        raise SupaclawError("not confirmed, so it isn't done")


def confirm_unless(yes: bool, question: str, refusal: str) -> None:
    """Ask unless `yes`; where nobody can answer, raise `OwnerMustAct` with `refusal`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise OwnerMustAct(refusal)
    confirm(question)


def confirm_reviewed(question: str, commands: str) -> None:
    """Ask about something just printed; raises `OwnerMustAct` where nobody can read it."""
    confirm_unless(False, question, f"review it with `supaclaw {commands} show`; then add --yes")


def ask_yes_or_no(question: str) -> bool:
    """Whether the answer is yes; Enter alone means no."""
    with _ended_input():
        return typer.confirm(printable(question), default=False, err=True)


def ask(question: str, default: str = "") -> str:
    """Ask for a line; Enter alone means the default, which the question shows."""
    return _line(question, default).strip()


def ask_secret_text(question: str, limit: int) -> str:
    """Ask for a line without echoing it; a pipe may hold several lines, up to `limit` characters in all."""
    if not sys.stdin.isatty():
        return sys.stdin.read(limit)
    return _line(question, hidden=True)


def ask_secret_line(question: str) -> str:
    """Ask for a line without echoing it; empty on Enter alone. A pipe may answer several such questions."""
    return _line(question, "", hidden=sys.stdin.isatty()).strip()


def _line(question: str, default: str | None = None, *, hidden: bool = False) -> str:
    with _ended_input():
        show = bool(default)
        return str(typer.prompt(printable(question), default=default, show_default=show, hide_input=hidden, err=True))


@contextmanager
def _ended_input() -> Iterator[None]:
    """Say in a line of its own that the input ended, or Ctrl-C came, before the answer."""
    try:
        yield
    except typer.Abort:
        echo(error=True)
        raise SupaclawError("stopped, since there was no answer") from None
