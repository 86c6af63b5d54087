"""Finding 10: sign-in links go to terminals and to nobody's log; and the page's address is nobody else's."""

import asyncio
import os
import pty
import re
import socket
import sys
from pathlib import Path

import pytest

from gateway.app.local import announce, listen, page_name, reserve_other_loopback
from gateway.domain.errors import OwnerMustAct
from gateway.llm.client import Description
from tests.journeys.process import GatewayProcess

ADDRESS = "http://127.0.0.1:8787"
LINK = "http://claw-0.localhost:8787/login#t=secret"
GUIDE = Description("guide", "no key", ("guide",), ())


class Terminal:
    """Standard output as a terminal or as a file."""

    def __init__(self, *, isatty: bool) -> None:
        self._isatty = isatty
        self.text = ""

    def isatty(self) -> bool:
        return self._isatty

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def told(monkeypatch: pytest.MonkeyPatch, *, isatty: bool, command: str | None) -> tuple[str, int]:
    """What a start prints, and how many links it made for that."""
    made: list[str] = []
    terminal = Terminal(isatty=isatty)
    monkeypatch.setattr("sys.stdout", terminal)
    announce(ADDRESS, command, lambda: made.append(LINK) or LINK, GUIDE)
    return terminal.text, len(made)


def test_a_terminal_is_shown_a_link(monkeypatch: pytest.MonkeyPatch):
    assert told(monkeypatch, isatty=True, command=None) == (f"ready\nweb   {LINK}\nmodel guide (no key)\n", 1)


@pytest.mark.parametrize(
    ("isatty", "command", "named"),
    [
        (False, None, "supaclaw web"),
        (False, "docker compose exec supaclaw supaclaw web", "docker compose exec supaclaw supaclaw web"),
        (True, "docker compose exec supaclaw supaclaw web", "docker compose exec supaclaw supaclaw web"),
    ],
    ids=["systemd", "docker", "docker with a terminal, which is logged too"],
)
def test_a_log_is_told_the_command(monkeypatch: pytest.MonkeyPatch, isatty: bool, command: str | None, named: str):
    text, made = told(monkeypatch, isatty=isatty, command=command)
    assert text.splitlines()[1] == f"web   {ADDRESS}  (`{named}` prints a link to sign in)"
    assert made == 0
    assert "#t=" not in text


async def test_no_link_reaches_a_pipe_or_a_log_file(gateway: GatewayProcess):
    printed = await gateway.command("web")
    [link] = re.findall(r"http://claw-[0-9a-f]{20}\.localhost:\d+/login#t=\S+", printed.told)
    name = link.removeprefix("http://").partition(":")[0]
    everything = "\n".join(gateway.told) + "".join(
        path.read_text("utf-8", "replace") for path in (gateway.data / "logs").rglob("*") if path.is_file()
    )
    assert "`supaclaw web` prints a link to sign in" in everything
    assert "#t=" not in everything
    assert name not in everything


async def test_up_in_a_terminal_prints_a_link(process: GatewayProcess):
    screen, inside = pty.openpty()
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "up"), env=process._environ({}), cwd=process.home, stdout=inside
    )
    os.close(inside)
    shown = ""
    while "model " not in shown:
        shown += (await asyncio.to_thread(os.read, screen, 4096)).decode()
    started.terminate()
    await started.wait()
    os.close(screen)
    assert re.search(r"^web +http://claw-[0-9a-f]{20}\.localhost:\d+/login#t=", shown, re.MULTILINE)


def test_the_pages_name_is_kept_for_our_eyes_and_the_same_at_every_start(tmp_path: Path):
    first = page_name(tmp_path)
    file = tmp_path / "keys" / "page-name"
    assert re.fullmatch(r"claw-[0-9a-f]{20}\.localhost", first)
    assert file.stat().st_mode & 0o777 == 0o600
    assert page_name(tmp_path) == first
    file.write_text("")
    assert page_name(tmp_path) not in {"", first}


def v6(port: int) -> socket.socket:
    try:
        return socket.create_server(("::1", port), family=socket.AF_INET6)
    except OSError as exc:
        pytest.skip(f"no IPv6 here: {exc}")


def test_nobody_else_answers_at_the_other_loopback_address():
    with listen("127.0.0.1", 0) as ours:
        port = ours.getsockname()[1]
        v6(0).close()
        with reserve_other_loopback(ours):
            with pytest.raises(OSError, match="in use"):
                socket.create_server(("::1", port), family=socket.AF_INET6)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("::1", port), timeout=5)
        v6(port).close()


def test_a_program_that_answers_there_stops_the_start():
    refused = pytest.raises(OwnerMustAct, match=r"another program has port \d+ of ::1: .* set web.port")
    with listen("127.0.0.1", 0) as ours, v6(ours.getsockname()[1]), refused, reserve_other_loopback(ours):
        pass
