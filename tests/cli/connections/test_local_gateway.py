import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli.connections.local_gateway import LocalGateway, web_address
from gateway.config.data.instance import hold_instance
from gateway.config.environment import Environment
from gateway.config.model import WebSettings
from tests.cli.conftest import Supaclaw, tcp_server


@pytest.fixture
def nobody_there(keys: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    assert keys.exists()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    monkeypatch.setenv("SUPACLAW_PORT", port)
    return f"http://127.0.0.1:{port}"


def test_another_programs_refusal_is_not_taken_for_ours(
    supaclaw: Supaclaw, running: dict[str, str], keys: Path
) -> None:
    running["GET /api/status"] = "{}"
    (keys / "local-token").write_text("wrong")

    done = supaclaw("status")

    assert done.code == 1
    assert "answers 401; another program may have that port" in done.err


@pytest.mark.usefixtures("running")
def test_a_failure_of_the_gateway_itself_leads_to_its_log(supaclaw: Supaclaw, place: Path) -> None:
    with hold_instance(place / "data"):
        done = supaclaw("status")

    assert done.code == 1
    assert done.err.endswith(f"failed (500); its log says why: {place / 'data' / 'logs'}\n")


@pytest.mark.parametrize("answer", ["<html>", "[]"])
def test_another_programs_page_is_not_taken_for_ours(supaclaw: Supaclaw, running: dict[str, str], answer: str) -> None:
    running["GET /api/status"] = answer

    assert "does not answer like a gateway; another program may have that port" in supaclaw("status").err


def test_before_the_first_start_nothing_runs(supaclaw: Supaclaw) -> None:
    done = supaclaw("status")

    assert done.code == 1
    assert "no gateway has run on" in done.err
    assert "`supaclaw up` starts the gateway" in done.err


def test_when_nothing_runs_it_says_so(supaclaw: Supaclaw, nobody_there: str) -> None:
    done = supaclaw("status")

    assert done.code == 1
    assert done.err == f"supaclaw: nothing runs at {nobody_there}; `supaclaw up` starts the gateway\n"


def test_a_gateway_that_runs_and_does_not_answer_is_told(supaclaw: Supaclaw, place: Path, nobody_there: str) -> None:
    with hold_instance(place / "data"):
        done = supaclaw("status")

    assert done.code == 1
    assert f"does not answer at {nobody_there}" in done.err


def test_a_gateway_is_found_where_it_runs_whatever_the_environment_says(
    supaclaw: Supaclaw, place: Path, running: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    running["GET /api/status"] = '{"version": "0.1.0"}'
    with hold_instance(place / "data") as hold:
        hold.record(f"http://127.0.0.1:{os.environ['SUPACLAW_PORT']}")
        monkeypatch.setenv("SUPACLAW_PORT", "1")

        assert supaclaw("status").out == "version: 0.1.0\n"


def test_a_key_that_cannot_be_read_is_told(supaclaw: Supaclaw, keys: Path) -> None:
    (keys / "local-token").unlink()
    (keys / "local-token").mkdir()

    assert "run this as the gateway's user" in supaclaw("status").err


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("example.org", "http://example.org:1"),
    ],
)
def test_a_gateway_on_all_addresses_is_reached_on_this_machine(host: str, address: str) -> None:
    assert web_address(WebSettings(host=host, port=1)) == address


def reset(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def answer_nonsense(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"220 mail.example.com\r\n")


@pytest.mark.parametrize("answer", [reset, answer_nonsense])
def test_a_program_that_answers_no_http_listens_and_is_not_healthy(
    place: Path, answer: Callable[[socket.socket], None]
) -> None:
    with tcp_server(answer) as port:
        gateway = LocalGateway(Environment.read(os.environ), f"http://127.0.0.1:{port}")

        assert gateway.health() is not None
        assert gateway.health() != 200


def test_a_gateway_that_accepts_and_never_answers_listens(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        gateway = LocalGateway(Environment.read(os.environ), f"http://127.0.0.1:{server.getsockname()[1]}")

        assert gateway.health() is not None
        assert gateway.health() != 200


def test_nothing_listens_where_a_connection_is_refused(place: Path, nobody_there: str) -> None:
    assert LocalGateway(Environment.read(os.environ), nobody_there).health() is None
