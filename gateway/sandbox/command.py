"""One command for the workshop: its arguments, the files it may see, and its limits."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import NamedTuple

MAX_REQUEST_BYTES = 128 * 1024
"""Of a command with its environment; neither a socket nor one argument to the kernel can be much larger."""


class Window(NamedTuple):
    """The size of a terminal."""

    rows: int
    columns: int


class Tier(StrEnum):
    """How a command is confined; all have seccomp and limits, and Landlock unless a container replaces it."""

    NAMESPACES = "namespaces"
    """Its own root, processes, network and users."""
    LANDLOCK = "landlock"
    """No namespaces: calls that Landlock doesn't cover are supervised one by one."""
    CONTAINER = "container"
    """A container that holds only the workspace, around all commands; Landlock if the kernel has it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for all processes of a command together, unless noted."""

    seconds: float = 60
    cpu_seconds: int = 600
    """Of each process."""
    memory: int = 1024**3
    """Bytes; each process may reserve as much."""
    processes: int = 256
    """Threads count."""
    file_bytes: int = 1024**3
    """Of each file."""
    disk_bytes: int = 4 * 1024**3
    """By how much free space may shrink meanwhile."""
    disk_files: int = 500_000
    """By how many files, folders and links the disk may get more meanwhile."""
    spare_disk_bytes: int = 256 * 1024**2
    """Free space that is left to others."""
    spare_percent: int = 5
    """Of the disk's space, of its number of files, and of the machine's memory: left to others, too."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command and its confinement; paths of the workspace are relative to it."""

    arguments: tuple[str, ...]
    workspace: str
    tier: Tier
    landlock: int
    """The version of Landlock to use."""
    folder: str = "."
    """Its working directory in the workspace."""
    environment: Mapping[str, str] = field(default_factory=dict)
    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    """Further files and folders that it may read."""
    scratch: str = ""
    """A private folder for temporary files; in namespaces it is in memory."""
    limits: Limits = Limits()
    network: str = ""
    """Where the gateway listens on its loopback, as `address:port`; "" for no sockets at all."""
    temporary: str = ""
    """A folder to delete once the command is over."""
    deletes_only: bool = False
    """Whether its files can only be read and deleted, since the disk has nothing to spare."""

    @property
    def proxy(self) -> tuple[str, int]:
        """`network` as host and port."""
        host, _, port = self.network.partition(":")
        return host, int(port)

    def packed(self) -> bytes:
        """The bytes for `parse_command`."""
        return json.dumps(asdict(self), ensure_ascii=False).encode("utf-8", "replace")


def parse_command(request: bytes) -> Command:
    """The command in packed bytes."""
    values = json.loads(request)
    limits, tier = Limits(**values.pop("limits")), Tier(values.pop("tier"))
    return Command(**{**values, **{name: tuple(values[name]) for name in TUPLES}}, limits=limits, tier=tier)


TUPLES = ("arguments", "read_only", "hidden", "reads")


class Ending(StrEnum):
    """Why a command has ended."""

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
    """Its watcher has ended, and the command with it."""


@dataclass(frozen=True, slots=True)
class Report:
    """How a command ended. A signal counts as exit code 128 plus its number, as in shells."""

    ending: Ending
    code: int | None = None
    problem: str = ""
    milliseconds: int = 0

    def packed(self) -> bytes:
        """The bytes for `parse_report`."""
        return json.dumps(asdict(self)).encode()


def parse_report(body: bytes) -> Report:
    """The report in packed bytes; without any, the command was lost."""
    if not body:
        return Report(Ending.LOST, problem="the process that watched over it was killed; the machine may lack memory")
    values = json.loads(body)
    return Report(**{**values, "ending": Ending(values["ending"])})
