"""What the gateway and the service say to each other: one packet each way. A command's input, output, errors, the line
that it ends with, and an archive of its own files, if it has any, come along as descriptors."""

import json
import math
import os
import re
import socket
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

from gateway.domain.errors import SupaclawError
from gateway.sandbox.command import Command, Limits, Tier

VERSION = 2
MAX_REPLY_BYTES = 4096
DESCRIPTORS = 4
"""A command's input, output, errors, and the line that it ends with."""
TEMPORARY = "/tmp"
"""Where both containers have a file system of their own for what one command needs."""
_OWN = ("workspace", "tier", "landlock", "scratch", "temporary")
"""What the service knows itself."""
_TEXTS = ("arguments", "read_only", "hidden", "reads")
_LOOPBACK = re.compile(r"127(\.\d{1,3}){3}:\d{4,5}")


class BadRequest(SupaclawError):
    """A packet that no gateway of this version sends."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end, as this one sees it."""

    user: int
    process: int


Admits: TypeAlias = Callable[[Peer], bool]


def from_elsewhere(peer: Peer) -> bool:
    """Whether it is of the same user, and in another container: no process of this one's namespace has the number 0.

    A command has the same user, and always a number.
    """
    return peer == Peer(os.getuid(), 0)


def peer_of(connection: socket.socket) -> Peer:
    """As the kernel says it."""
    process, user, _ = struct.unpack("=3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(user, process)


@dataclass(frozen=True, slots=True)
class WorkshopRequest:
    """A command, and the folder below `TEMPORARY` that is made for it alone, if there is one."""

    command: Command
    folder: str = ""
    apart: bool = False
    """Whether it works there, and not in the workspace; else it reads there what the archive holds."""


@dataclass(frozen=True, slots=True)
class WorkshopReply:
    """How commands are confined there; a problem is why none runs."""

    tier: Tier = Tier.CONTAINER
    landlock: int = 0
    problem: str = ""

    def packed(self) -> bytes:
        """As `reply` reads it."""
        return json.dumps({"version": VERSION, **asdict(replace(self, problem=self.problem[:500]))}).encode()


def parse_reply(packet: bytes) -> WorkshopReply:
    """Raises `BadRequest`."""
    match _loaded(packet):
        case {"version": 2, "tier": str(tier), "landlock": int(landlock), "problem": str(problem)} if tier in set(Tier):
            return WorkshopReply(Tier(tier), landlock, problem)
    raise BadRequest("the service of commands answers with something else; start both from the same image")


def pack_request(request: WorkshopRequest | None) -> bytes:
    """A command to run; without one, the question how it would be confined."""
    values: dict[str, object] = {"version": VERSION, "command": None}
    if request is not None:
        values |= asdict(request)
        values["command"] = {k: v for k, v in asdict(request.command).items() if k not in _OWN}
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")


def parse_request(packet: bytes, descriptors: int) -> WorkshopRequest | None:
    """A request as it was packed, with so many descriptors; raises `BadRequest`."""
    match _loaded(packet):
        case {"version": 2, "command": None} if not descriptors:
            return None
        case {"version": 2, "command": dict(values), "folder": str(folder), "apart": bool(apart)} if (
            descriptors == DESCRIPTORS + (folder != "" and not apart)
            and (_temporary(folder) or (folder == "" and not apart))
        ):
            return WorkshopRequest(_command(values), folder, apart)
    raise BadRequest(f"this is not a request of version {VERSION}; start both services from the same image")


def _loaded(packet: bytes) -> object:
    try:
        return json.loads(packet)
    except (ValueError, RecursionError):
        return None


def _command(values: dict[str, object]) -> Command:
    match values:
        case {
            "folder": str(folder),
            "environment": dict(environment),
            "limits": dict(limits),
            "network": str(network),
            **texts,
        }:
            arguments, read_only, hidden, reads = (_texts(texts.pop(name, None)) for name in _TEXTS)
            named = all(_plain(text) for pair in environment.items() for text in pair)
            placed = all(map(_inside, (folder, *read_only, *hidden))) and all(map(_absolute, reads))
            if not texts and arguments and named and placed and (not network or _LOOPBACK.fullmatch(network)):
                own = Command(arguments, "", Tier.CONTAINER, 0, folder, environment, read_only, hidden, reads)
                return replace(own, limits=_limits(own.limits, limits), network=network)
    raise BadRequest("the command is not well-formed")


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(_plain(each) for each in value):
        raise BadRequest("the command has something else where texts belong")
    return tuple(value)


def _plain(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _inside(path: str) -> bool:
    return _plain(path) and not path.startswith("/") and ".." not in path.split("/")


def _absolute(path: str) -> bool:
    return path.startswith("/") and _inside(path[1:])


def _temporary(path: str) -> bool:
    return _absolute(path) and path.startswith(f"{TEMPORARY}/")


def _limits(usual: Limits, values: dict[object, object]) -> Limits:
    """Whole numbers, but for the time."""
    for name, value in values.items():
        number = type(value) is int or (name == "seconds" and type(value) is float and math.isfinite(value))
        if name not in asdict(usual) or not number or not 0 <= float(str(value)) < 2**53:
            raise BadRequest("the command has a limit that there cannot be")
    return Limits(**{**asdict(usual), **{str(name): value for name, value in values.items()}})
