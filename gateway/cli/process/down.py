"""`supaclaw down`."""

import asyncio
import logging
import os
import signal
import time
from pathlib import Path

from gateway.cli.console import echo
from gateway.cli.output import Timeout
from gateway.cli.progress import slow
from gateway.config.data.instance import running_pid
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.logs import SecretMask, logging_to


def down(timeout: Timeout = 30) -> None:
    """Stop the gateway and its embedded Postgres."""
    environment = Environment.read(os.environ)
    pid = running_pid(environment.data)
    if pid is not None:
        with slow("stopping …"):
            _stop(pid, environment.data, timeout)
    if environment.data.exists():
        from gateway.store.embedded.postgres import EmbeddedPostgres

        with logging_to(None, SecretMask(), level=logging.WARNING):
            asyncio.run(EmbeddedPostgres(environment.data).stop())
    echo("nothing was running" if pid is None else "stopped")


def _stop(pid: int, data: Path, timeout: float) -> None:
    """Ask the gateway to stop and wait until it has released the data directory."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while running_pid(data) == pid:
        if time.monotonic() > deadline:
            raise OwnerMustAct(f"the gateway (pid {pid}) is still running; wait, or end it with `kill -9 {pid}`")
        time.sleep(0.05)
