import io
import json
import sys
from collections.abc import Iterator

import pytest

from gateway.cli.people import channels
from gateway.cli.people.channels import qr_picture
from gateway.cli.terminal.console import redraw
from tests.cli.conftest import Gateway, Supaclaw

LOGIN = "GET /api/channels/whatsapp/login"
CONNECTED = {"state": "connected", "account": "4915550001", "qr": "", "code": "", "problem": ""}


@pytest.fixture
def phases(running: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, str]]]:
    """What the gateway says, look after look; the last stays."""
    phases: list[dict[str, str]] = []

    def next_phase(_seconds: float) -> None:
        phases.pop(0)
        running[LOGIN] = json.dumps(phases[0])

    monkeypatch.setattr(channels.time, "sleep", next_phase)
    yield phases
    assert len(phases) == 1


def begin(running: dict[str, str], phases: list[dict[str, str]], *wanted: dict[str, str]) -> None:
    phases += wanted
    running[LOGIN] = json.dumps(phases[0])


def test_a_code_is_drawn_until_the_phone_took_it(
    supaclaw: Supaclaw, running: dict[str, str], phases: list[dict[str, str]]
) -> None:
    first, second = {"state": "waiting", "qr": "2@first"}, {"state": "waiting", "qr": "2@second"}
    begin(running, phases, {"state": "logged out", "problem": "log in"}, first, first, second, CONNECTED)

    done = supaclaw("channel", "login", "whatsapp")

    assert done.code == 0
    assert done.out.splitlines() == [
        *qr_picture("2@first").splitlines(),
        *qr_picture("2@second").splitlines(),
        "Linked to +4915550001.",
    ]
    assert done.err == ""


def test_a_trouble_on_the_way_is_said_once(
    supaclaw: Supaclaw, running: dict[str, str], phases: list[dict[str, str]]
) -> None:
    trouble = {"state": "starting", "problem": "WhatsApp cannot be reached"}
    begin(running, phases, trouble, trouble, CONNECTED)

    assert supaclaw("channel", "login", "whatsapp").err == "WhatsApp cannot be reached\n"


def test_a_phone_gets_a_code_to_type_and_no_picture(
    supaclaw: Supaclaw, running: dict[str, str], phases: list[dict[str, str]]
) -> None:
    running["POST /api/channels/whatsapp/login"] = json.dumps({"code": "ABCD-1234"})
    waiting = {"state": "waiting", "qr": "2@first", "code": "ABCD-1234"}
    begin(running, phases, waiting, CONNECTED)

    out = supaclaw("channel", "login", "whatsapp", "--phone", "+4915550001").out.splitlines()

    assert out[0].endswith("then type ABCD-1234")
    assert out[1:] == ["Linked to +4915550001."]


def test_a_login_that_nobody_ends_gives_up(supaclaw: Supaclaw, running: dict[str, str]) -> None:
    running[LOGIN] = json.dumps({"state": "starting"})

    done = supaclaw("channel", "login", "whatsapp", "--timeout", "0")

    assert done.code == 1
    assert "run `supaclaw channel login whatsapp` again" in done.err


def test_the_device_is_unlinked(supaclaw: Supaclaw, running: dict[str, str]) -> None:
    running["POST /api/channels/whatsapp/logout"] = "{}"

    assert supaclaw("channel", "logout", "whatsapp").out == "Unlinked.\n"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (CONNECTED, "connected: +4915550001\n"),
        ({"state": "logged out", "problem": "run this"}, "logged out: run this\n"),
    ],
)
def test_how_the_link_is(supaclaw: Supaclaw, running: dict[str, str], told: dict[str, str], said: str) -> None:
    running[LOGIN] = json.dumps(told)

    assert supaclaw("channel", "status", "whatsapp").out == said


def test_programs_learn_how_the_link_is_but_no_codes(supaclaw: Supaclaw, running: dict[str, str]) -> None:
    running[LOGIN] = json.dumps({"state": "waiting", "qr": "2@secret", "code": "ABCD-1234"})

    assert supaclaw("channel", "status", "whatsapp", "--json").json == {
        "state": "waiting",
        "account": "",
        "problem": "",
    }


def test_on_a_terminal_a_code_takes_the_place_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", screen)
    for qr in ("2@first", "2@second"):
        redraw(qr_picture(qr))

    assert screen.getvalue().count("\x1b[2J") == 2
    assert screen.getvalue().endswith(f"\x1b[2J{qr_picture('2@second')}\n")


def test_a_picture_is_square_and_has_a_light_border() -> None:
    lines = qr_picture("2@key").splitlines()

    assert {len(line) for line in lines} == {2 * len(lines) - 1}
    assert set(lines[0]) == {"█"}


def test_what_the_gateway_objects_to_is_passed_on(
    supaclaw: Supaclaw, running: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(gateway: Gateway) -> None:
        gateway.send_response(409)
        gateway.end_headers()
        gateway.wfile.write(b'{"error": {"message": "WhatsApp is not connected"}}')

    assert running == {}
    monkeypatch.setattr(Gateway, "do_POST", refuse)

    done = supaclaw("channel", "logout", "whatsapp")

    assert done.code == 1
    assert done.err == "supaclaw: WhatsApp is not connected\n"
