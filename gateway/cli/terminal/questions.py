"""Questions on the terminal; they go to stderr, so that piped output holds none."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from gateway.cli.terminal.console import echo
from gateway.domain.errors import OwnerMustAct, SupaclawError
from gateway.domain.text.texts import printable

Yes = Annotated[bool, typer.Option("--yes", help="Don't ask for confirmation.")]


def confirm(question: str) -> None:
    """Ask, and end the command unless the answer is yes."""
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
