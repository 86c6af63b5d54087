"""Questions on the terminal; they go to stderr, so that what is piped on holds none."""

import sys
from typing import Annotated

import typer

from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.texts import printable

Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]


def confirm(question: str) -> None:
    """Anything but yes ends the command."""
    typer.confirm(printable(question), abort=True, err=True)


def ask_shown(question: str, commands: str) -> None:
    """Confirm what was just shown; raises `OwnerMustAct` where nobody can see it."""
    if not sys.stdin.isatty():
        raise OwnerMustAct(f"review it with `supaclaw {commands} show`; then add --yes")
    confirm(question)


def agrees(question: str) -> bool:
    """Enter alone means no."""
    return typer.confirm(printable(question), default=False, err=True)


def ask(question: str, default: str = "") -> str:
    """What was typed, or on Enter alone the default, which is shown."""
    return str(typer.prompt(printable(question), default=default, show_default=bool(default), err=True)).strip()


def ask_hidden(question: str, limit: int) -> str:
    """What is typed without an echo; of a pipe, all of it, up to `limit` characters."""
    if not sys.stdin.isatty():
        return sys.stdin.read(limit)
    return str(typer.prompt(printable(question), hide_input=True, err=True))


def ask_secret(question: str) -> str:
    """Not shown while it is typed; empty on Enter alone. A pipe is read as it is."""
    hidden = sys.stdin.isatty()
    return str(typer.prompt(printable(question), default="", show_default=False, hide_input=hidden, err=True)).strip()
