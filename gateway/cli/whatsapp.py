"""`supaclaw whatsapp`: link a WhatsApp account to the running gateway, and let it go."""

import io
import sys
import time
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
    shown, deadline = "", time.monotonic() + timeout
    while time.monotonic() < deadline:
        told = _look()
        if told.state == "connected":
            print(f"Linked to +{told.account}." if told.account else "Linked.")
            return
        new = "" if told.state == "logged out" else told.problem or (told.qr if phone is None else "")
        if new and new != shown:
            _show(told)
            shown = new
        time.sleep(LOOK_SECONDS)
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


def _show(told: Login) -> None:
    """On a terminal a code takes the place of the one before, so that no camera sees two."""
    if told.problem:
        print(told.problem, file=sys.stderr)
    else:
        from rich.console import Console

        Console().clear()
        print(qr_picture(told.qr))


def qr_picture(text: str) -> str:
    """A QR code in half blocks, light on dark as terminals are."""
    from segno import make_qr

    drawn = io.StringIO()
    make_qr(text, error="L").terminal(drawn, border=2, compact=True)
    return drawn.getvalue().rstrip("\n")
