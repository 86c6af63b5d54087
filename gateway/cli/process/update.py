"""`supaclaw update`: a newer version, installed beside this one and tried on a copy before it takes over."""

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gateway.app.installation import Checkout, Folder, Program, Version, find_installation, program_of, run
from gateway.app.storage.database import reach
from gateway.cli.connections.local_gateway import START_SECONDS, LocalGateway, gateway_address
from gateway.cli.process.service import UNIT, active_service
from gateway.cli.terminal.console import echo, show_after_a_second
from gateway.cli.terminal.output import flag
from gateway.config.data.instance import known_instance_id, running_pid
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.errors import OwnerMustAct, SupaclawError
from gateway.logs import SecretMask, logging_to
from gateway.store.delivery import inbox
from gateway.store.embedded.cluster import CLUSTER, CLUSTER_COPY
from gateway.store.migrate import check_schema

KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SUPACLAW_MASTER_KEY", "SUPACLAW_MASTER_KEY_FILE")
_POLL_SECONDS = 0.1
_ARRIVAL = "arrival"
"""In the copy of the database: the number of its last arrival."""


def update(check: Annotated[bool, flag("Only say whether there is a newer version.", "--check")] = False) -> None:
    """Install a newer version and restart the gateway with it.

    It is tried on a copy of your data first. If it fails there, or doesn't start, the version before continues.
    """
    installation, environment = find_installation(), Environment.read(os.environ)
    try:
        with show_after_a_second("looking for a newer version …"):
            version = installation.newest()
        if version is None or check:
            found = version and f"{version.name} is available; `supaclaw update` installs it"
            echo(found or "this is the newest version")
            return
        echo(f"installing {version.name} beside this one …")
        program = installation.install(version)
        echo("trying it on a copy of your data …")
        _rehearse(program, environment)
    except OwnerMustAct as error:
        raise OwnerMustAct(f"{error}; nothing has changed") from error
    with logging_to(None, SecretMask(), level=logging.WARNING):
        _Switch(installation, version, environment, active_service()).run()


def _rehearse(program: Program, environment: Environment) -> None:
    """Raise `OwnerMustAct` unless the program upgrades a copy and answers there; no channel is connected to it."""
    with tempfile.TemporaryDirectory(prefix="supaclaw-") as folder:
        backup = Path(folder, "copy.tar.gz")
        if known_instance_id(environment.data) is not None:
            run(*program_of(), "backup", "--with-secrets", backup)
        rehearse(program, backup, Path(folder))


def rehearse(program: Program, backup: Path, folder: Path) -> str:
    """The program's answer to a message, on the backup if there is one; raises `OwnerMustAct` if it gives none.

    The copy has an embedded database, no channel and no model: nothing of it reaches anybody.
    """
    config = folder / "config.json"
    config.write_text('{"models": {"primary": "guide/built-in"}, "heartbeat": {"every": null}}')
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    places = {"SUPACLAW_DATA": f"{folder}/data", "SUPACLAW_CONFIG": str(config), "SUPACLAW_PORT": str(port)}
    environ = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | places | {"HOME": str(folder)}
    if backup.exists():
        run(*program, "restore", backup, environ=environ)
    if answer := run(*program, "chat", "Are you there?", environ=environ).strip():
        return answer
    raise OwnerMustAct("it starts on a copy, but doesn't answer a message there")


@dataclass(frozen=True, slots=True)
class _Switch:
    """From the version that runs to one that was tried."""

    installation: Folder | Checkout
    version: Version
    environment: Environment
    service: str
    """The option of `supaclaw service` for the service that runs the gateway; "" if none does."""

    def run(self) -> None:
        """Raise `OwnerMustAct` after a failure that says which version is in use."""
        if running_pid(self.environment.data) is None:
            self.installation.use(self.version)
            echo(f"updated to {self.version.name}; `supaclaw up` starts it")
            return
        self._discard(self._copy)  # of an update that was killed with both of its processes
        _continue_if_killed()
        self._switch()

    def _switch(self) -> None:
        """Do what is left to do, wherever a kill ended this before; the version that runs is stopped last."""
        try:
            program = self.installation.use(self.version)
            self._stop()
            self._copy_database()
            self._start(program)
        except (SupaclawError, OSError) as error:
            raise OwnerMustAct(f"{self.version.name} did not start ({error}); {self._go_back()}") from error
        self._discard(self._copy)
        echo(f"updated to {self.version.name}, which runs")

    def _go_back(self) -> str:
        """The outcome; a database that has accepted messages since is never replaced."""
        with suppress(SupaclawError):
            self._stop()
        shutil.rmtree(self._scratch, ignore_errors=True)  # a copy for which there was no room
        newest, readable = asyncio.run(self._look())
        replaceable = self._copy.exists() and running_pid(self.environment.data) is None
        if not readable and not (replaceable and newest == int((self._copy / _ARRIVAL).read_text())):
            with suppress(SupaclawError):
                self._start(self.installation.use(self.version))
            return "its database can't be read by the version before, so it stays in use; its log says why"
        program = self.installation.go_back()
        self._discard(self._copy if readable else self._database)
        self._start(program)
        return "the version before runs again, and nothing has changed"

    def _start(self, program: Program) -> None:
        """Start it and wait until it is ready; a gateway that a killed update had started gives way to it."""
        process, begun = self._run(program), time.monotonic()
        with show_after_a_second("starting the gateway …"):
            while not self._is_ready(process):
                ended = process is not None and process.poll() is not None
                if ended and running_pid(self.environment.data) is not None:
                    self._stop()
                    process = self._run(program)
                elif ended or time.monotonic() - begun > START_SECONDS:
                    raise OwnerMustAct(f"its log says why: {self.environment.data / 'logs'}")
                time.sleep(_POLL_SECONDS)

    def _run(self, program: Program) -> subprocess.Popen[bytes] | None:
        """The process of the gateway, or None if a service runs it."""
        if self.service:
            run(*program, "service", "install", self.service)
            return None
        folder, none, up = self.environment.config.parent, subprocess.DEVNULL, (*program, "up")
        return subprocess.Popen(up, stdin=none, stdout=none, stderr=none, start_new_session=True, cwd=folder)

    def _is_ready(self, process: subprocess.Popen[bytes] | None) -> bool:
        pid, environment = running_pid(self.environment.data), self.environment
        runs = pid is not None and (process is None or process.pid == pid)
        return runs and LocalGateway(environment, gateway_address(environment)).health() == 200

    def _stop(self) -> None:
        """Stop the gateway and a server that `_look` left; a service stays enabled, for the next boot."""
        if self.service:
            run("systemctl", self.service, "stop", UNIT)
        run(*program_of(), "down")

    def _copy_database(self) -> None:
        """Copy the stopped embedded server, which the new version may change; raise `OwnerMustAct` without room."""
        newest, _ = asyncio.run(self._look())
        if self._database.exists() and not self._copy.exists():
            shutil.rmtree(self._scratch, ignore_errors=True)
            run("cp", "-a", self._database, self._scratch)
            (self._scratch / _ARRIVAL).write_text(str(newest))
            self._scratch.rename(self._copy)

    def _discard(self, folder: Path) -> None:
        """Delete it under another name: half a database never has the name of a whole one."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        if folder.exists():
            folder.rename(self._scratch)
            shutil.rmtree(self._scratch, ignore_errors=True)

    async def _look(self) -> tuple[int, bool]:
        """The number of the last arrival, and whether this version can use the database."""
        async with reach(self.environment, load_early(self.environment, os.environ), mine=False) as database:
            arrival = await database.read(inbox.newest)
            with suppress(OwnerMustAct):
                await check_schema(database)
                return arrival, True
            return arrival, False

    @property
    def _database(self) -> Path:
        return self.environment.data / CLUSTER

    @property
    def _copy(self) -> Path:
        """While there is no database, the next start renames this to it."""
        return self.environment.data / CLUSTER_COPY

    @property
    def _scratch(self) -> Path:
        return self.environment.data / "postgres.scratch"


def _continue_if_killed() -> None:
    """Return in a child with a session of its own, and here if that is killed: one of the two always finishes.

    Neither a lost terminal nor Ctrl-C reaches the child. If it ends by itself, so does this process.
    """
    if (child := os.fork()) == 0:
        os.setsid()
        return
    if (status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) >= 0:
        sys.exit(status)
    with suppress(OSError):  # until the programs that it has started have ended
        for _ in range(int(START_SECONDS / _POLL_SECONDS)):
            os.killpg(child, 0)
            time.sleep(_POLL_SECONDS)
