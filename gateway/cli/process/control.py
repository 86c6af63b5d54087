"""`supaclaw status`, `web`, `down`, `machines` and `version`: show what runs, sign in to it, stop or forget it."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated

from pydantic import JsonValue

from gateway.cli.connections.database import run_quietly, with_connection
from gateway.cli.connections.local_gateway import ask_gateway
from gateway.cli.terminal.console import echo, show_after_a_second
from gateway.cli.terminal.output import AsJson, Timeout, argument, heading, print_result, print_rows, shown
from gateway.config.data.instance import running_pid
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.texts import printable
from gateway.store.work import instances


def status(as_json: AsJson = False, timeout: Timeout = 10) -> None:
    """Show the state of the running gateway."""
    state = ask_gateway("/api/status", timeout=timeout)
    print_result(state, "\n".join(_lines(state)), as_json=as_json)


def _lines(value: Mapping[str, JsonValue], indent: str = "") -> Iterator[str]:
    for key, item in value.items():
        match item:
            case None | False | "" | {} | [] if not item:
                continue
            case dict():
                yield f"{indent}{heading(key)}:"
                yield from _lines(item, f"{indent}  ")
            case list():
                yield f"{indent}{heading(key)}: {', '.join(printable(shown(key, each), keep='') for each in item)}"
            case _:
                yield f"{indent}{heading(key)}: {printable(shown(key, item), keep='')}"


def web() -> None:
    """Print a new sign-in link to the web page. It works once, for ten minutes."""
    echo(ask_gateway("/api/login-links", method="POST", timeout=10)["url"])


def down(timeout: Timeout = 30) -> None:
    """Stop the gateway and its embedded Postgres."""
    environment = Environment.read(os.environ)
    pid = running_pid(environment.data)
    if pid is not None:
        with show_after_a_second("stopping …"):
            _stop(pid, environment.data, timeout)
    if environment.data.exists():
        from gateway.store.embedded.postgres import EmbeddedPostgres

        run_quietly(EmbeddedPostgres(environment.data).stop())
    echo("nothing was running" if pid is None else "stopped")


def _stop(pid: int, data: Path, timeout: float) -> None:
    """Ask the gateway to stop and wait until it has released the data directory."""
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise OwnerMustAct(f"the gateway (pid {pid}) runs as another user; stop it as that user") from None
    deadline = time.monotonic() + timeout
    while running_pid(data) == pid:
        if time.monotonic() > deadline:
            raise OwnerMustAct(f"the gateway (pid {pid}) is still running; wait, or end it with `kill -9 {pid}`")
        time.sleep(0.05)


def version() -> None:
    """Print the version."""
    echo(installed("supaclaw"))


MACHINE_COLUMNS = ("name", "kind", "state", "seen_at", "channels", "files", "tasks")
Name = Annotated[str, argument("A name in the list of `supaclaw machines`.", "NAME")]


def show(as_json: AsJson = False) -> None:
    """List gateways and workers, with their channels and tasks."""
    rows = [
        {name: getattr(each, name) for name in ("name", "kind", "state", "seen_at", "channels")}
        | {"files": each.homes, "tasks": each.running}
        for each in with_connection(instances.every)
    ]
    print_rows(rows, MACHINE_COLUMNS, as_json=as_json, none="No machines.")


def forget(name: Name) -> None:
    """Forget a machine that no longer runs.

    Another one can then connect its channels.
    """
    if not with_connection(lambda tx: instances.forget(tx, name)):
        raise OwnerMustAct(f"no machine {name} is stopped or dead; `supaclaw machines` lists them")
    echo(f"Forgotten: {name}.")
