"""The gateway on this machine: the running one, or one started for as long as we need it."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from gateway.cli.progress import slow
from gateway.cli.running import gateway_address
from gateway.config.data.instance import running_pid
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct, TryAgainLater

START_SECONDS = 60.0
STOP_SECONDS = 30.0
LISTEN_SECONDS = 3.0
"""A gateway that holds its data folder listens well within that, and answers that it is starting."""


@dataclass(frozen=True, slots=True)
class LocalGateway:
    """A gateway and its address."""

    environment: Environment
    url: str

    def listens(self) -> bool:
        """Whether anything answers at its address, healthy or not."""
        try:
            with urlopen(f"{self.url}/health", timeout=2):
                return True
        except URLError as error:
            return isinstance(error, HTTPError) or not isinstance(error.reason, ConnectionRefusedError)

    def healthy(self) -> bool:
        """Whether it reports that it is healthy."""
        try:
            with urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def ensure_gateway() -> Iterator[LocalGateway]:
    """Your gateway; if none runs, starts one and stops it after the block."""
    environment = Environment.read(os.environ)
    gateway = LocalGateway(environment, gateway_address(environment))
    if running_pid(environment.data) is not None:
        with slow("waiting for the gateway …"):
            _wait_for(gateway)
        yield gateway
        return
    with tempfile.TemporaryFile() as errors, _started(environment, errors) as process:
        with slow("starting the gateway …"):
            _wait_for(gateway, process, errors)
        yield gateway


@contextmanager
def _started(environment: Environment, errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A gateway in its own session, so that Ctrl-C does not reach it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "up"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
        env=os.environ | {f"SUPACLAW_{name.upper()}": str(path) for name, path in environment.place._asdict().items()},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def _wait_for(
    gateway: LocalGateway, process: subprocess.Popen[bytes] | None = None, errors: IO[bytes] | None = None
) -> None:
    begun = time.monotonic()
    while not gateway.healthy():
        if process and errors and process.poll() is not None:
            raise OwnerMustAct(f"the gateway did not start: {_last_words(errors)}")
        waited = time.monotonic() - begun
        if waited > START_SECONDS or (process is None and waited > LISTEN_SECONDS and not gateway.listens()):
            raise TryAgainLater(f"the gateway does not answer at {gateway.url}; see `supaclaw doctor`")
        time.sleep(0.05)


def _last_words(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("supaclaw: ") if lines else "it said nothing; see `supaclaw doctor`"
