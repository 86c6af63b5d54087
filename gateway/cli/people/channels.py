"""`supaclaw channel`: link an account on a channel without tokens, and unlink it."""

import io
import time
from typing import Annotated
from urllib.parse import quote

from pydantic import TypeAdapter

from gateway.cli.connections.local_gateway import ask_gateway
from gateway.cli.terminal.console import echo, redraw
from gateway.cli.terminal.output import AsJson, argument, option, print_result
from gateway.domain.channels.channel import Login
from gateway.domain.errors import OwnerMustAct

POLL_SECONDS = 1.0
CODE_SECONDS = 40.0

Name = Annotated[str, argument("The channel's name in config.json.", "NAME")]
Phone = Annotated[
    str | None, option("Link with a code to type on this phone instead of a QR code; with the country code.", "NUMBER")
]
PhoneTimeout = Annotated[float, option("How long to wait for the phone.", "SECONDS")]


def login(name: Name, phone: Phone = None, timeout: PhoneTimeout = 300) -> None:
    """Link an account with a QR code to scan on its phone."""
    if phone is not None and _login_state(name).state != "connected":
        code = ask_gateway(_path(name, "login"), method="POST", body={"phone": phone}, timeout=CODE_SECONDS)["code"]
        echo(f"On the phone: Linked devices > Link a device > Link with phone number instead, then type {code}")
    shown, deadline = "", time.monotonic() + timeout
    while time.monotonic() < deadline:
        state = _login_state(name)
        if state.state == "connected":
            echo(f"Linked to +{state.account}." if state.account else "Linked.")
            return
        new = "" if state.state == "logged out" else state.problem or (state.qr if phone is None else "")
        if new and new != shown:
            _show(state)
            shown = new
        time.sleep(POLL_SECONDS)
    raise OwnerMustAct(f"nobody linked the device in time; run `supaclaw channel login {name}` again")


def logout(name: Name) -> None:
    """Unlink the account and delete its login."""
    ask_gateway(_path(name, "logout"), method="POST", timeout=CODE_SECONDS)
    echo("Unlinked.")


def status(name: Name, as_json: AsJson = False) -> None:
    """Show which account is linked, and whether the link works."""
    state = _login_state(name)
    parts = (state.state, f"+{state.account}" if state.account else "", state.problem)
    facts = {"state": state.state, "account": state.account, "problem": state.problem}
    print_result(facts, ": ".join(filter(None, parts)), as_json=as_json)


def _login_state(name: str) -> Login:
    return TypeAdapter(Login).validate_python(ask_gateway(_path(name, "login"), timeout=10))


def _path(name: str, what: str) -> str:
    return f"/api/channels/{quote(name, safe='')}/{what}"


def _show(state: Login) -> None:
    """Print the problem, or the QR code in place of the previous one, so that no camera sees two."""
    if state.problem:
        echo(state.problem, error=True)
    else:
        redraw(qr_picture(state.qr))


def qr_picture(text: str) -> str:
    """A QR code in half blocks, for light text on a dark terminal."""
    from segno import make_qr

    drawn = io.StringIO()
    make_qr(text, error="L").terminal(drawn, border=2, compact=True)
    return drawn.getvalue().rstrip("\n")
