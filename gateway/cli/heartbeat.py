"""`supaclaw heartbeat`: one now, for a person, a systemd timer or a cron job."""

import time
from dataclasses import asdict
from typing import Annotated

import typer
from pydantic import TypeAdapter

from gateway.cli.output import AsJson, print_json
from gateway.cli.running import ask
from gateway.domain.errors import TryAgainLater
from gateway.domain.texts import one_line
from gateway.domain.vitals import Beat, Outcome

PATH = "/api/heartbeat"
LOOK_SECONDS = 1.0
ANSWER_SECONDS = 60.0
LONGEST = 2_000

_BEAT = TypeAdapter(Beat)

Patience = Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for its end.")]


def heartbeat(as_json: AsJson = False, timeout: Patience = 600) -> None:
    """Let the agent look around now.

    Prints how that went, in a line. One that is under way is waited for.
    """
    beat = _BEAT.validate_python(ask(PATH, method="POST", timeout=ANSWER_SECONDS))
    deadline = time.monotonic() + timeout
    while beat.outcome is Outcome.RUNNING:
        if time.monotonic() >= deadline:
            raise TryAgainLater("the heartbeat is still under way; `supaclaw status` tells how it went")
        time.sleep(LOOK_SECONDS)
        beat = _BEAT.validate_python(ask(PATH, timeout=ANSWER_SECONDS))
    if as_json:
        print_json(asdict(beat) | {"at": beat.at.isoformat()})
    else:
        print(_line(beat))
    if beat.outcome is Outcome.FAILED:
        raise typer.Exit(1)


def _line(beat: Beat) -> str:
    text = one_line(beat.text, LONGEST)
    if beat.outcome is Outcome.TOLD or not text:
        return text or beat.outcome.value
    return f"{beat.outcome.value}: {text}"
