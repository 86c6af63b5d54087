"""Questions on the terminal; they go to stderr, so that piped output holds none."""

import sys
from typing import Annotated

import typer

from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.texts import printable

Yes = Annotated[bool, typer.Option("--yes", help="Don't ask for confirmation.")]


def confirm(question: str) -> None:
    """Ask, and end the command unless the answer is yes."""
    typer.confirm(printable(question), abort=True, err=True)


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
    return typer.confirm(printable(question), default=False, err=True)


def ask(question: str, default: str = "") -> str:
    """Ask for a line; Enter alone means the default, which the question shows."""
    return str(typer.prompt(printable(question), default=default, show_default=bool(default), err=True)).strip()


def ask_secret_text(question: str, limit: int) -> str:
    """Ask for a line without echoing it; a pipe may hold several lines, up to `limit` characters in all."""
    if not sys.stdin.isatty():
        return sys.stdin.read(limit)
    return str(typer.prompt(printable(question), hide_input=True, err=True))


def ask_secret_line(question: str) -> str:
    """Ask for a line without echoing it; empty on Enter alone. A pipe may answer several such questions."""
    hidden = sys.stdin.isatty()
    return str(typer.prompt(printable(question), default="", show_default=False, hide_input=hidden, err=True)).strip()
