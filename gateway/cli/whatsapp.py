"""`supaclaw whatsapp`: link a WhatsApp account to the running gateway, and let it go."""

import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict

from gateway.cli.output import AsJson, print_json
from gateway.cli.running import ask
from gateway.domain.errors import OwnerMustAct

PATH = "/api/channels/whatsapp"
LOOK_SECONDS = 1.0
CODE_SECONDS = 40.0

Phone = Annotated[
    str | None,
    typer.Option(metavar="NUMBER", help="Type a code on this phone instead of scanning one; with the country code."),
]
Patience = Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for the phone.")]


class Login(BaseModel):
    """What the gateway says about a login."""

    model_config = ConfigDict(frozen=True)

    state: str
    account: str = ""
    qr: str = ""
    code: str = ""
    problem: str = ""


def login(phone: Phone = None, timeout: Patience = 300) -> None:
    """Link WhatsApp by a code that the phone scans."""
    if phone is not None and _look().state != "connected":
        code = ask(f"{PATH}/login", method="POST", body={"phone": phone}, timeout=CODE_SECONDS)["code"]
        print(f"On the phone: Linked devices > Link a device > Link with phone number instead, then type {code}")
    screen = _Screen(show_qr=phone is None)
    for told in _looks(timeout):
        if told.state == "connected":
            print(f"Linked to +{told.account}." if told.account else "Linked.")
            return
        screen.show(told)
    raise OwnerMustAct("nobody linked the device in time; run `supaclaw whatsapp login` again")


def logout() -> None:
    """Unlink the device and forget the account."""
    ask(f"{PATH}/logout", method="POST", timeout=CODE_SECONDS)
    print("Unlinked.")


def status(as_json: AsJson = False) -> None:
    """Say how the link is."""
    told = _look()
    if as_json:
        print_json(told.model_dump(exclude={"qr", "code"}))
    else:
        parts = (told.state, f"+{told.account}" if told.account else "", told.problem)
        print(": ".join(filter(None, parts)))


def _look() -> Login:
    return Login.model_validate(ask(f"{PATH}/login", timeout=10))


def _looks(seconds: float) -> Iterator[Login]:
    """How it stands, again and again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield _look()
        time.sleep(LOOK_SECONDS)


class _Screen:
    """Shows each code and each trouble once; on a terminal a code takes the place of the one before."""

    def __init__(self, *, show_qr: bool) -> None:
        self._show_qr = show_qr
        self._shown = ""
        self._lines = 0

    def show(self, told: Login) -> None:
        """What is new."""
        new = told.qr if self._show_qr and told.qr else told.problem
        if not new or new == self._shown or told.state == "logged out":
            return
        self._shown = new
        if new == told.problem:
            print(new, file=sys.stderr)
            self._lines = 0
        else:
            self._draw(qr_lines(new))

    def _draw(self, lines: list[str]) -> None:
        if self._lines and sys.stdout.isatty():
            print(f"\x1b[{self._lines}A\x1b[J", end="")
        print("\n".join(lines))
        self._lines = len(lines)


def qr_lines(text: str) -> list[str]:
    """A QR code in half blocks, light on dark as terminals are, so that dark modules are the gaps."""
    from segno import make_qr

    rows = [[not dark for dark in row] for row in make_qr(text, error="L").matrix_iter(border=2)]
    rows += [[True] * len(rows[0])] * (len(rows) % 2)
    return [
        "".join(" ▄▀█"[2 * upper + lower] for upper, lower in zip(*pair, strict=True))
        for pair in zip(rows[::2], rows[1::2], strict=True)
    ]
