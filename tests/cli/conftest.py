import contextlib
import io
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from gateway.cli.main import build
from gateway.cli.terminal.console import print_error


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> object:
        return json.loads(self.out)


Supaclaw = Callable[..., Done]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with an environment that says nothing else."""
    for name in list(os.environ):
        if name.startswith(("SUPACLAW_", "TELEGRAM_", "SLACK_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SUPACLAW_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def supaclaw(place: Path) -> Supaclaw:
    """Run a command as the shell would."""
    assert place.exists()

    def run(*arguments: str) -> Done:
        result = CliRunner().invoke(build(), arguments, prog_name="supaclaw")
        told = io.StringIO()
        if result.exception and not isinstance(result.exception, SystemExit):
            with contextlib.redirect_stderr(told):
                print_error(type(result.exception), result.exception, None)
        return Done(result.exit_code, result.stdout, result.stderr + told.getvalue())

    return run


class Gateway(BaseHTTPRequestHandler):
    """Answers like a running gateway, or with what it is told to."""

    answers: ClassVar[dict[str, str]] = {}
    """What it says; a question it has no answer to is a failure of its own."""

    def do_GET(self) -> None:
        good = self.headers["Authorization"] == "Bearer claw_local"
        answer = self.answers.get(f"{self.command} {self.path}")
        self.send_response((200 if answer else 500) if good else 401)
        self.end_headers()
        self.wfile.write((answer or "").encode())

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def tcp_server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a program that gives each connection to `answer`, then closes it."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def keys(place: Path) -> Path:
    """The folder of a gateway that was started before."""
    keys = place / "data" / "keys"
    keys.mkdir(parents=True)
    (keys / "local-token").write_text("claw_local\n")
    return keys


@pytest.fixture
def running(keys: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A gateway at work; it says what is put into this."""
    assert keys.exists()
    answers: dict[str, str] = {}
    monkeypatch.setattr(Gateway, "answers", answers)
    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        monkeypatch.setenv("SUPACLAW_PORT", str(server.server_port))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield answers
        finally:
            server.shutdown()
            thread.join()
