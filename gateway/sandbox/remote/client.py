"""The gateway's end: commands go to a service, which confines them where nothing of the gateway's is."""

import asyncio
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from gateway.sandbox.command import MAX_REQUEST_BYTES, Command, Tier, unpacked
from gateway.sandbox.remote.protocol import (
    MAX_REPLY_BYTES,
    Admits,
    BadRequest,
    Reply,
    from_elsewhere,
    packed,
    peer_of,
    reply,
)
from gateway.sandbox.workshop import NoJail, Workshop

_SECONDS = 10.0


def workshop(scratch: Path, path: Path | None) -> Workshop:
    """The jail of this machine, or that of the service behind `path`."""
    return RemoteWorkshop(scratch, path=path) if path else Workshop(scratch)


@dataclass(slots=True)
class RemoteWorkshop(Workshop):
    """The jail of another container, whose socket is at `path`; `admits` says what may answer there."""

    path: Path = Path()
    admits: Admits = from_elsewhere

    @property
    def is_local(self) -> bool:
        """False: the service sees no file but the workspace, and how it keeps instructions depends on its kernel."""
        return False

    def missing(self) -> str:
        """Nothing: the service may start later than the gateway."""
        return ""

    async def tier(self) -> Tier:
        """As the service says at this moment, for it may have been started anew elsewhere."""
        return (await asyncio.to_thread(self._asked, None, [])).tier

    async def _send(self, request: bytes, descriptors: list[int]) -> None:
        if len(request) > MAX_REQUEST_BYTES:
            raise NoJail("the command is too long; put its text into a file and pass the path")
        command = unpacked(request)
        if command.reads or command.network:
            raise NoJail("the service of commands has no network, and no files but the workspace")
        await asyncio.to_thread(self._asked, command, descriptors)

    def _asked(self, command: Command | None, descriptors: list[int]) -> Reply:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(_SECONDS)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_REQUEST_BYTES)
                self._connect(connection)
                socket.send_fds(connection, [packed(command)], descriptors)
                found = reply(connection.recv(MAX_REPLY_BYTES))
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
