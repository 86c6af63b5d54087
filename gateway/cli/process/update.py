"""`supaclaw update`: a newer version, installed beside this one and tried on a copy before it takes over."""

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gateway.app.installation import Checkout, Folder, Program, Version, find_installation, program_of, run
from gateway.app.storage.database import reach
from gateway.cli.connections.local_gateway import START_SECONDS, LocalGateway, gateway_address
from gateway.cli.process.service import active_service
from gateway.cli.terminal.console import echo, show_after_a_second
from gateway.cli.terminal.output import flag
from gateway.config.data.instance import known_instance_id, running_pid
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.errors import OwnerMustAct, SupaclawError
from gateway.logs import SecretMask, logging_to
from gateway.store.delivery import inbox
from gateway.store.migrate import check_schema

KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SUPACLAW_MASTER_KEY", "SUPACLAW_MASTER_KEY_FILE")


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
        self._stop()
        before, _ = asyncio.run(self._look())
        try:
            self._copy_database()
            self._start(self.installation.use(self.version))
        except (SupaclawError, OSError) as error:
            raise OwnerMustAct(f"{self.version.name} did not start ({error}); {self._go_back(before)}") from error
        shutil.rmtree(self._copy, ignore_errors=True)
        echo(f"updated to {self.version.name}, which runs")

    def _go_back(self, before: int) -> str:
        """The outcome; a database that has accepted messages since is never replaced."""
        with suppress(SupaclawError):
            self._stop()
        newest, readable = asyncio.run(self._look())
        if not readable:
            if newest != before or not self._copy.exists():
                return "its database can't be read by the version before, so it stays in use; its log says why"
            # Deleting takes a while, and a start after a kill meanwhile would set up an empty database.
            failed = self.environment.data / "postgres.failed"
            shutil.rmtree(failed, ignore_errors=True)
            self._database.rename(failed)
            self._copy.rename(self._database)
            shutil.rmtree(failed, ignore_errors=True)
        self._start(self.installation.go_back())
        return "the version before runs again, and nothing has changed"

    def _start(self, program: Program) -> None:
        process = None
        if self.service:
            run(*program, "service", "install", self.service)
        else:
            folder, none, up = self.environment.config.parent, subprocess.DEVNULL, (*program, "up")
            process = subprocess.Popen(up, stdin=none, stdout=none, stderr=none, start_new_session=True, cwd=folder)
        gateway, begun = LocalGateway(self.environment, gateway_address(self.environment)), time.monotonic()
        with show_after_a_second("starting the gateway …"):
            while running_pid(self.environment.data) is None or gateway.health() != 200:
                ended = process is not None and process.poll() is not None
                if ended or time.monotonic() - begun > START_SECONDS:
                    raise OwnerMustAct(f"its log says why: {self.environment.data / 'logs'}")
                time.sleep(0.1)

    def _stop(self) -> None:
        run(*program_of(), *(("service", "uninstall", self.service) if self.service else ("down",)))

    def _copy_database(self) -> None:
        """Copy the stopped embedded server, which the new version may change; raise `OwnerMustAct` without room."""
        shutil.rmtree(self._copy, ignore_errors=True)
        if self._database.exists():
            run("cp", "-a", self._database, self._copy)

    async def _look(self) -> tuple[int, bool]:
        """The number of the last arrival, and whether this version can use the database."""
        async with reach(self.environment, load_early(self.environment, os.environ), mine=False) as database:
            arrival = await database.read(inbox.newest)
            try:
                await check_schema(database)
            except OwnerMustAct:
                return arrival, False
            return arrival, True

    @property
    def _database(self) -> Path:
        return self.environment.data / "postgres"

    @property
    def _copy(self) -> Path:
        return self.environment.data / "postgres.before"
