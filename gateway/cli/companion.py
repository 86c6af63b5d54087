"""A gateway to talk to: the one that runs, or one of our own for as long as we need it."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import urlopen

from gateway.cli.running import gateway_address, local_token
from gateway.config.environment import Environment
from gateway.config.instance import holder
from gateway.domain.errors import OwnerMustAct, TryAgainLater

START_SECONDS = 60.0
STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a gateway is reached."""

    environment: Environment
    url: str

    @property
    def data(self) -> Path:
        """Its data directory."""
        return self.environment.data

    def token(self) -> str:
        """The credential for programs on this machine; raises `OwnerMustAct`."""
        return local_token(self.environment)

    def well(self) -> bool:
        """Whether it answers."""
        try:
            with urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


@contextmanager
def gateway_at_hand() -> Iterator[Place]:
    """The gateway of this data directory; if none runs, one that lives as long as the block."""
    environment = Environment.read(os.environ)
    place = Place(environment, gateway_address(environment))
    if holder(environment.data) is not None:
        _wait_for(place, None)
        yield place
        return
    with tempfile.TemporaryFile() as errors, _started(errors) as process:
        _wait_for(place, process, errors)
        yield place


@contextmanager
def _started(errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A gateway in a session of its own, so that Ctrl-C is for us alone."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "up"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def _wait_for(place: Place, process: subprocess.Popen[bytes] | None, errors: IO[bytes] | None = None) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not place.well():
        if process is not None and process.poll() is not None:
            raise OwnerMustAct(f"the gateway did not start: {_last_words(errors)}")
        if time.monotonic() > deadline:
            raise TryAgainLater(f"the gateway does not answer at {place.url}; see `supaclaw doctor`")
        time.sleep(0.05)


def _last_words(errors: IO[bytes] | None) -> str:
    if errors is None:
        return "it said nothing"
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("supaclaw: ") if lines else "it said nothing; see `supaclaw doctor`"
