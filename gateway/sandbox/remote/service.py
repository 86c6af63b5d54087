"""`python -m gateway.sandbox.remote.service`: runs commands for the gateway of another container.

It has no data, no configuration and no keys. Its container is around all commands and holds nothing else; it ends
with the service, and with it everything that a command left."""

import asyncio
import os
import shutil
import socket
import sys
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from gateway.beside import afterwards, at_most
from gateway.sandbox.command import MAX_REQUEST_BYTES, Command, Tier
from gateway.sandbox.jail import seccomp
from gateway.sandbox.jail.kernel import DUMPABLE, set_control
from gateway.sandbox.remote.protocol import (
    DESCRIPTORS,
    TEMPORARY,
    Admits,
    BadRequest,
    WorkshopReply,
    WorkshopRequest,
    from_elsewhere,
    parse_request,
    peer_of,
)
from gateway.sandbox.workshop import NoJail, Workshop


@dataclass(slots=True)
class ContainerWorkshop(Workshop):
    """Uses namespaces if the kernel has them. Once a command has killed its watcher, nothing runs any more."""

    guards_instructions: ClassVar[bool] = False
    _zygote_flags: tuple[str, ...] = ("watched",)

    def missing(self) -> str:
        """Why no tier can work here; "" if one may, even without Landlock."""
        return "" if seccomp.supported() else "this kernel does not filter system calls (seccomp)"

    def alive(self) -> bool:
        """Whether the process that starts commands runs, or hasn't been started yet."""
        return self._zygote is None or self._zygote.returncode is None

    async def _start_zygote(self) -> None:
        if self._zygote is not None:
            raise NoJail("the service of commands is restarting; try again in a moment")
        await Workshop._start_zygote(self)

    async def _probed(self) -> Tier:
        if problem := self.missing():
            raise NoJail(problem)
        for tier in (Tier.NAMESPACES, Tier.CONTAINER):
            if tier not in self.without and not (problem := await self._tried(tier)):
                return tier
        raise NoJail(f"a command cannot be started there: {problem}")


SOCKET = "workshop.sock"
READ_ONLY = ("sessions", "memory")
_REQUEST_SECONDS = 5.0
_WAITING = 16
_LOOK_SECONDS = 2.0
_SCRATCH = ".temporary"
_SPARE_BYTES = 16 * 1024**2


@dataclass(slots=True)
class Service:
    """Listens in `folder`; every command works in `workspace`."""

    folder: Path
    workspace: Path
    jail: ContainerWorkshop
    admits: Admits = from_elsewhere

    async def serve(self) -> None:
        """Serve until it can't any more; then the caller ends, and with it the container."""
        problem = await self._problem()
        path = self.folder / SOCKET
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(str(path))
            path.chmod(0o600)
            listening.listen(_WAITING)
            listening.setblocking(False)
            own = path.lstat()
            async with asyncio.TaskGroup() as requests:
                while _same(path, own) and self.jail.alive():
                    async with at_most(_LOOK_SECONDS):
                        connection, _ = await asyncio.get_running_loop().sock_accept(listening)
                        requests.create_task(self._answer(connection, problem))

    async def _problem(self) -> str:
        """Why it can't run commands, found at the start; "" if it can."""
        if open_folders := [name for name in READ_ONLY if not _read_only(self.workspace / name)]:
            return f"{open_folders[0]}/ is not mounted read-only in the service of commands"
        try:
            await self.jail.tier()
        except NoJail as error:
            return str(error)
        return ""

    async def _answer(self, connection: socket.socket, problem: str) -> None:
        """Answer one request and close the connection."""
        with connection:
            if not self.admits(peer_of(connection)):
                return
            connection.settimeout(_REQUEST_SECONDS)
            with suppress(OSError):
                connection.send((await self._replied(connection, problem)).packed())

    async def _replied(self, connection: socket.socket, problem: str) -> WorkshopReply:
        size = MAX_REQUEST_BYTES + 1
        packet, descriptors, flags, _ = await asyncio.to_thread(socket.recv_fds, connection, size, DESCRIPTORS + 1)
        complete = not flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC)
        try:
            request = parse_request(packet if complete else b"", len(descriptors))
            tier = Tier.CONTAINER if problem else await self.jail.tier()
            if request is not None and not problem:
                await self._start(request, tier, descriptors)
            return WorkshopReply(tier, self.jail.landlock, problem)
        except (BadRequest, NoJail) as error:
            return WorkshopReply(problem=str(error))
        except (OSError, zipfile.BadZipFile) as error:
            return WorkshopReply(problem=f"the service of commands can't prepare it: {error}")
        finally:
            for each in descriptors:
                os.close(each)

    async def _start(self, request: WorkshopRequest, tier: Tier, descriptors: list[int]) -> None:
        command = await asyncio.to_thread(_prepared, request, tier, str(self.workspace), descriptors[DESCRIPTORS:])
        try:
            await self.jail.send(replace(command, landlock=self.jail.landlock), descriptors[:DESCRIPTORS])
        except NoJail:
            shutil.rmtree(command.temporary, ignore_errors=True)
            raise


def _prepared(request: WorkshopRequest, tier: Tier, workspace: str, files: list[int]) -> Command:
    """The command with its private folder and files, which are deleted when it ends."""
    command, folder = request.command, request.folder
    if missing := [path for path in command.reads if not os.path.exists(path)]:
        raise NoJail(f"{missing[0]} is not in the service of commands; mount it there at the same path")
    if folder:
        os.makedirs(folder, 0o700)
    elif tier is not Tier.NAMESPACES:
        folder = tempfile.mkdtemp(dir=TEMPORARY)
    own = replace(command, workspace=workspace, tier=tier, temporary=folder, scratch=folder)
    if request.apart:
        # Its folder is in memory, where there is less to spare than on a disk.
        return replace(own, workspace=folder, limits=replace(command.limits, spare_disk_bytes=_SPARE_BYTES))
    if files:
        _unpack(files[0], folder)
        scratch = os.path.join(folder, _SCRATCH)
        os.mkdir(scratch, 0o700)
        return replace(own, scratch=scratch, reads=(*command.reads, folder))
    return own


def _unpack(archive: int, folder: str) -> None:
    """Unpack its files as read-only programs; all of them or none."""
    try:
        with open(archive, "rb", closefd=False) as file, zipfile.ZipFile(file) as packed:
            for name in packed.namelist():
                os.chmod(packed.extract(name, folder), 0o500)
    except (OSError, zipfile.BadZipFile):
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _same(path: Path, before: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(path.lstat(), before)
    return False


def _read_only(path: Path) -> bool:
    with suppress(OSError):
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    return False


async def main(folder: str, workspace: str) -> None:
    """Serve until it can't any more."""
    set_control(DUMPABLE, 0)
    jail = ContainerWorkshop(Path(tempfile.gettempdir()))
    async with afterwards(jail.close):
        await Service(Path(folder), Path(workspace), jail).serve()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
    sys.exit(1)
