"""The bridge to the memory; tests/web/api/test_mcp.py drives it with the official client."""

import io
import json
import socket
import sys
from types import SimpleNamespace

import pytest

from tests.cli.conftest import Supaclaw, tcp_server

REQUESTS = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n{"jsonrpc": "2.0", "id": 2, "method": "ping"}\n'


def serve(monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw, url: str) -> list[dict[str, object]]:
    """The responses to two requests."""
    from gateway.cli.agent.mcp_serve import mcp_serve

    output = io.BytesIO()
    monkeypatch.setenv("SUPACLAW_TOKEN", "claw_x")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(REQUESTS)))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=output))
    mcp_serve(url)
    monkeypatch.undo()
    return [json.loads(line) for line in output.getvalue().splitlines()]


def answer_nonsense(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"220 mail.example.com\r\n")


def break_off(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")


@pytest.mark.parametrize("answer", [answer_nonsense, break_off])
def test_a_malformed_http_response_is_an_error_of_the_request_alone(
    monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw, answer: object
) -> None:
    with tcp_server(answer) as port:  # type: ignore[arg-type]
        responses = serve(monkeypatch, supaclaw, f"http://127.0.0.1:{port}")

    assert [response["id"] for response in responses] == [1, 2]
    assert all("the gateway does not answer" in str(response["error"]) for response in responses)


def test_an_address_without_a_scheme_is_explained(monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> None:
    responses = serve(monkeypatch, supaclaw, "claw.example.com")

    assert "unknown url type" in str(responses[0]["error"])
