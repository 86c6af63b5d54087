"""`supaclaw heartbeat`: run a heartbeat now, for a person, a systemd timer or a cron job."""

import time
from dataclasses import asdict
from typing import Annotated

import typer
from pydantic import TypeAdapter

from gateway.cli.connections.local_gateway import ask_gateway
from gateway.cli.terminal.output import AsJson, option, print_result
from gateway.domain.errors import TryAgainLater
from gateway.domain.health import HeartbeatOutcome, HeartbeatResult
from gateway.domain.text.texts import one_line

PATH = "/api/heartbeat"
POLL_SECONDS = 1.0
REQUEST_SECONDS = 60.0
MAX_TEXT = 2_000

_BEAT = TypeAdapter(HeartbeatResult)

Timeout = Annotated[float, option("How long to wait for it to end.", "SECONDS")]


def heartbeat(as_json: AsJson = False, timeout: Timeout = 600) -> None:
    """Run a heartbeat now.

    Prints the outcome in one line. If one is already running, waits for that one.
    """
    beat = _BEAT.validate_python(ask_gateway(PATH, method="POST", timeout=REQUEST_SECONDS))
    deadline = time.monotonic() + timeout
    while beat.outcome is HeartbeatOutcome.RUNNING:
        if time.monotonic() >= deadline:
            raise TryAgainLater("the heartbeat is still running; `supaclaw status` shows its outcome")
        time.sleep(POLL_SECONDS)
        beat = _BEAT.validate_python(ask_gateway(PATH, timeout=REQUEST_SECONDS))
    print_result(asdict(beat), _line(beat), as_json=as_json)
    if beat.outcome is HeartbeatOutcome.FAILED:
        raise typer.Exit(1)


def _line(beat: HeartbeatResult) -> str:
    text = one_line(beat.text, MAX_TEXT)
    if beat.outcome is HeartbeatOutcome.TOLD or not text:
        return text or beat.outcome.value
    return f"{beat.outcome.value}: {text}"
