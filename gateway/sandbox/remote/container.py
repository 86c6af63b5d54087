"""The jail where a container stands around all commands, and holds nothing else but the service."""

from dataclasses import dataclass

from gateway.sandbox import seccomp
from gateway.sandbox.command import Command, Tier
from gateway.sandbox.workshop import NoJail, Workshop


@dataclass(slots=True)
class ContainerWorkshop(Workshop):
    """Takes namespaces where the kernel gives them. Once a command has got at what watches over it, nothing runs."""

    _zygote_flags: tuple[str, ...] = ("watched",)

    def missing(self) -> str:
        """Why no tier can work here; a kernel without Landlock will do."""
        return "" if seccomp.supported() else "this kernel does not filter system calls (seccomp)"

    def alive(self) -> bool:
        """Whether what starts the commands is, if it has been started."""
        return self._zygote is None or self._zygote.returncode is None

    async def start_with(self, command: Command, descriptors: list[int]) -> None:
        """Start a command with its input, its output and the line that it ends with."""
        await self._send(command.packed(), descriptors)

    async def _start_zygote(self) -> None:
        if self._zygote is not None:
            raise NoJail("the service of commands is being started anew; try it again in a moment")
        await Workshop._start_zygote(self)

    async def _probed(self) -> Tier:
        if problem := self.missing():
            raise NoJail(problem)
        for tier in (Tier.NAMESPACES, Tier.CONTAINER):
            if tier not in self.without and not (problem := await self._tried(tier)):
                return tier
        raise NoJail(f"a command cannot be started there: {problem}")
