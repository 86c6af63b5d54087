"""The gateway's end: sends commands to a service that confines them in a container without the gateway's data."""

import asyncio
import os
import socket
import stat
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, ClassVar

from gateway.sandbox.command import MAX_REQUEST_BYTES, Command, Tier
from gateway.sandbox.remote.protocol import (
    MAX_REPLY_BYTES,
    TEMPORARY,
    Admits,
    BadRequest,
    WorkshopReply,
    WorkshopRequest,
    from_elsewhere,
    pack_request,
    parse_reply,
    peer_of,
)
from gateway.sandbox.workshop import NoJail, NoNetwork, Workshop, check_size, hidden_address

_SECONDS = 10.0


def open_workshop(scratch: Path, path: Path | None) -> Workshop:
    """The jail of this machine, or of the service behind the socket at `path`."""
    return RemoteWorkshop(Path(TEMPORARY), path=path) if path else Workshop(scratch)


@dataclass(slots=True)
class RemoteWorkshop(Workshop):
    """The jail of another container, whose socket is at `path`; `admits` decides which peers may answer there.

    A command's folder of `scratch` is made there, too, at the same path.
    """

    guards_instructions: ClassVar[bool] = False
    path: Path = Path()
    admits: Admits = from_elsewhere

    def missing(self) -> str:
        """Nothing: the service may start later than the gateway."""
        return ""

    async def tier(self) -> Tier:
        """The tier that the service reports now: it may have been restarted elsewhere."""
        return (await self._state()).tier

    async def network(self) -> str:
        """An address on the loopback that all commands there share, which no other command can guess."""
        if problem := _privacy_problem(await self._state()):
            raise NoNetwork(f"a command has no network there: {problem}")
        return hidden_address()

    async def require_privacy(self) -> None:
        """Raise `NoJail` if a command can't have files that no other command reaches."""
        if problem := _privacy_problem(await self._state()):
            raise NoJail(problem)

    async def _state(self) -> WorkshopReply:
        return await asyncio.to_thread(self._ask, None, [])

    async def send(self, command: Command, descriptors: list[int]) -> None:
        """Have the service start it."""
        await asyncio.to_thread(self._run, command, descriptors)

    def _run(self, command: Command, descriptors: list[int]) -> None:
        if self._is_scratch(command.workspace):
            self._ask(WorkshopRequest(command, command.workspace, apart=True), descriptors)
        elif files := next(filter(self._is_scratch, command.reads), ""):
            reads = tuple(path for path in command.reads if path != files)
            with tempfile.TemporaryFile() as archive:
                _archive(Path(files), archive)
                self._ask(WorkshopRequest(replace(command, reads=reads), files), [*descriptors, archive.fileno()])
        else:
            self._ask(WorkshopRequest(command), descriptors)

    def _is_scratch(self, path: str) -> bool:
        """Whether this is a folder of `scratch`."""
        return path.startswith(f"{self.scratch}/")

    def _ask(self, request: WorkshopRequest | None, descriptors: list[int]) -> WorkshopReply:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(_SECONDS)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_REQUEST_BYTES)
                self._connect(connection)
                socket.send_fds(connection, [check_size(pack_request(request))], descriptors)
                found = parse_reply(connection.recv(MAX_REPLY_BYTES))
        except BadRequest as error:
            raise NoJail(str(error)) from error
        except OSError as error:
            raise NoJail(self._unavailable(f"does not answer ({error.strerror or error})")) from error
        if found.problem:
            raise NoJail(found.problem)
        return found

    def _connect(self, connection: socket.socket) -> None:
        """Connect to a socket of another container only: a command may have replaced it."""
        if not stat.S_ISSOCK(os.lstat(self.path).st_mode):
            raise NoJail(self._unavailable("has something other than its socket there"))
        connection.connect(str(self.path))
        if not self.admits(peer_of(connection)):
            raise NoJail(f"what answers at {self.path} is not the service of commands, or runs as another user")

    def _unavailable(self, what: str) -> str:
        return f"the service of commands at {self.path} {what}; `docker compose up -d workshop` starts it"


def _privacy_problem(state: WorkshopReply) -> str:
    """Why commands there can't have private files; "" if they can."""
    if state.tier is Tier.NAMESPACES or state.landlock:
        return ""
    return "its kernel has no Landlock, so commands would reach each other's files and proxies; use Linux 5.13 or newer"


def _archive(folder: Path, target: IO[bytes]) -> None:
    with zipfile.ZipFile(target, "w", strict_timestamps=False) as archive:
        for path in filter(Path.is_file, sorted(folder.rglob("*"))):
            archive.write(path, path.relative_to(folder))
    target.flush()
