"""The gateway's end: commands go to a service, which confines them where nothing of the gateway's is."""

import asyncio
import os
import socket
import stat
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from gateway.sandbox.command import MAX_REQUEST_BYTES, Command, Tier, parse_command
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
from gateway.sandbox.workshop import NoJail, NoNetwork, Workshop, hidden_address

_SECONDS = 10.0


def open_workshop(scratch: Path, path: Path | None) -> Workshop:
    """The jail of this machine, or that of the service behind `path`."""
    return RemoteWorkshop(Path(TEMPORARY), path=path) if path else Workshop(scratch)


@dataclass(slots=True)
class RemoteWorkshop(Workshop):
    """The jail of another container, whose socket is at `path`; `admits` says what may answer there.

    A folder of `scratch` that a command gets is made there, too, at the same path.
    """

    path: Path = Path()
    admits: Admits = from_elsewhere

    @property
    def guards_instructions(self) -> bool:
        """False: it depends on the kernel of the service."""
        return False

    def missing(self) -> str:
        """Nothing: the service may start later than the gateway."""
        return ""

    async def tier(self) -> Tier:
        """As the service says at this moment, for it may have been started anew elsewhere."""
        return (await self._state()).tier

    async def network(self) -> str:
        """On the loopback that all commands there share, at a place that no other command can guess."""
        if problem := _shared(await self._state()):
            raise NoNetwork(f"a command has no network there: {problem}")
        return hidden_address()

    async def require_privacy(self) -> None:
        """Raise `NoJail` where a command can't have files that no other command reaches."""
        if problem := _shared(await self._state()):
            raise NoJail(problem)

    async def _state(self) -> WorkshopReply:
        return await asyncio.to_thread(self._asked, None, [])

    async def _send(self, request: bytes, descriptors: list[int]) -> None:
        if len(request) > MAX_REQUEST_BYTES:
            raise NoJail("the command is too long; put its text into a file and pass the path")
        await asyncio.to_thread(self._run, parse_command(request), descriptors)

    def _run(self, command: Command, descriptors: list[int]) -> None:
        if self._made(command.workspace):
            self._asked(WorkshopRequest(command, command.workspace, apart=True), descriptors)
        elif files := next(filter(self._made, command.reads), ""):
            reads = tuple(path for path in command.reads if path != files)
            with tempfile.TemporaryFile() as archive:
                _archive(Path(files), archive)
                self._asked(WorkshopRequest(replace(command, reads=reads), files), [*descriptors, archive.fileno()])
        else:
            self._asked(WorkshopRequest(command), descriptors)

    def _made(self, path: str) -> bool:
        """Whether it is a folder of `scratch`."""
        return path.startswith(f"{self.scratch}/")

    def _asked(self, request: WorkshopRequest | None, descriptors: list[int]) -> WorkshopReply:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(_SECONDS)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_REQUEST_BYTES)
                self._connect(connection)
                socket.send_fds(connection, [pack_request(request)], descriptors)
                found = parse_reply(connection.recv(MAX_REPLY_BYTES))
        except BadRequest as error:
            raise NoJail(str(error)) from error
        except OSError as error:
            raise NoJail(self._away(f"does not answer ({error.strerror or error})")) from error
        if found.problem:
            raise NoJail(found.problem)
        return found

    def _connect(self, connection: socket.socket) -> None:
        """Only to a socket, and only of another container: a command may have put something else in its place."""
        if not stat.S_ISSOCK(os.lstat(self.path).st_mode):
            raise NoJail(self._away("has something else than its socket there"))
        connection.connect(str(self.path))
        if not self.admits(peer_of(connection)):
            raise NoJail(f"what answers at {self.path} is not the service of commands, or runs as another user")

    def _away(self, what: str) -> str:
        return f"the service of commands at {self.path} {what}; `docker compose up -d workshop` starts it"


def _shared(state: WorkshopReply) -> str:
    """What keeps a command there from having something to itself; "" if nothing does."""
    if state.tier is Tier.NAMESPACES or state.landlock:
        return ""
    return "its kernel has no Landlock, so commands would reach each other's files and proxies; use Linux 5.13 or newer"


def _archive(folder: Path, target: IO[bytes]) -> None:
    with zipfile.ZipFile(target, "w", strict_timestamps=False) as archive:
        for path in filter(Path.is_file, sorted(folder.rglob("*"))):
            archive.write(path, path.relative_to(folder))
    target.flush()
