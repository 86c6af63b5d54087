"""One command for the workshop: what to run, what it may see of the files, and how much it may take."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

MAX_REQUEST_BYTES = 128 * 1024
"""Of a command with its environment; a socket does not take much more at once, nor does the kernel in one argument."""


class Tier(StrEnum):
    """How a command is confined; each has seccomp and limits, and Landlock but where a container stands for it."""

    NAMESPACES = "namespaces"
    """Its own root, processes, network and users: nothing else exists for it."""
    LANDLOCK = "landlock"
    """No namespaces: what Landlock does not cover is supervised, call by call."""
    CONTAINER = "container"
    """A container that has nothing but the workspace around all commands; Landlock as far as there is any."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What all processes of a command may take together, unless it says otherwise."""

    seconds: float = 60
    cpu_seconds: int = 600
    """Of each process."""
    memory: int = 1024**3
    """Bytes; each process may ask for as much."""
    processes: int = 256
    """Threads count."""
    file_bytes: int = 1024**3
    """Of each file."""
    disk_bytes: int = 4 * 1024**3
    """By which free space may shrink meanwhile."""
    spare_disk_bytes: int = 256 * 1024**2
    """Free space that is left to others."""


@dataclass(frozen=True, slots=True)
class Command:
    """Paths of the workspace are relative to it."""

    arguments: tuple[str, ...]
    workspace: str
    tier: Tier
    landlock: int
    """The version of Landlock to use."""
    folder: str = "."
    """Where it starts, in the workspace."""
    environment: Mapping[str, str] = field(default_factory=dict)
    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    """Further files and folders that are seen, read-only."""
    scratch: str = ""
    """A private folder for temporary files; in namespaces it has one in memory."""
    limits: Limits = Limits()
    network: str = ""
    """Where on its loopback the gateway listens, as `address:port`; "" for no sockets at all."""
    temporary: str = ""
    """A folder to delete once the command is over."""

    @property
    def proxy(self) -> tuple[str, int]:
        """`network` as sockets take it."""
        host, _, port = self.network.partition(":")
        return host, int(port)

    def packed(self) -> bytes:
        """As `unpacked` reads it."""
        return json.dumps(asdict(self), ensure_ascii=False).encode("utf-8", "replace")


def parse_command(request: bytes) -> Command:
    """A command as it was packed."""
    values = json.loads(request)
    limits, tier = Limits(**values.pop("limits")), Tier(values.pop("tier"))
    return Command(**{**values, **{name: tuple(values[name]) for name in _TUPLES}}, limits=limits, tier=tier)


_TUPLES = ("arguments", "read_only", "hidden", "reads")


class Ending(StrEnum):
    """Why a command is over."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    CANCELLED = "cancelled"
    OUTPUT = "output"
    REFUSED = "refused"
    """It never started."""
    LOST = "lost"
    """What watched over it is gone, and it with that."""


@dataclass(frozen=True, slots=True)
class Report:
    """How a command ended. A signal counts as an exit code of 128 and its number, as shells say it."""

    ending: Ending
    code: int | None = None
    problem: str = ""
    milliseconds: int = 0

    def packed(self) -> bytes:
        """As `report` reads it."""
        return json.dumps(asdict(self)).encode()


def parse_report(body: bytes) -> Report:
    """A report as it was packed; of nothing, that the command was lost."""
    if not body:
        return Report(Ending.LOST, problem="the process that watched over it was killed; the machine may lack memory")
    values = json.loads(body)
    return Report(**{**values, "ending": Ending(values["ending"])})
