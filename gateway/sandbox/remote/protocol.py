"""The packets between the gateway and the service: one each way. A command's input, output, errors, the socket for its
report, and an archive of its own files, if it has any, are passed as descriptors."""

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
from gateway.sandbox.command import TUPLES, Command, Limits, Tier

VERSION = 2
MAX_REPLY_BYTES = 4096
DESCRIPTORS = 4
"""A command's input, output, errors, and the socket for its report."""
TEMPORARY = "/tmp"
"""Where both containers have a file system of their own for the files of one command."""
_OWN = ("workspace", "tier", "landlock", "scratch", "temporary", "deletes_only")
"""The fields that the service fills in."""
_LOOPBACK = re.compile(r"127(\.\d{1,3}){3}:\d{4,5}")


class BadRequest(SupaclawError):
    """A packet that doesn't follow this version of the protocol."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end, by its numbers here."""

    user: int
    process: int


Admits: TypeAlias = Callable[[Peer], bool]


def from_elsewhere(peer: Peer) -> bool:
    """Whether the peer has the same user and is in another container, where its process number is 0.

    A command has the same user, but always a number.
    """
    return peer == Peer(os.getuid(), 0)


def peer_of(connection: socket.socket) -> Peer:
    """The process at the other end, as the kernel reports it."""
    process, user, _ = struct.unpack("=3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(user, process)


@dataclass(frozen=True, slots=True)
class WorkshopRequest:
    """A command, and the private folder below `TEMPORARY` to make for it, if any."""

    command: Command
    folder: str = ""
    apart: bool = False
    """Whether it works there, not in the workspace; else it only reads the archive's files there."""


@dataclass(frozen=True, slots=True)
class WorkshopReply:
    """How the service confines commands, or the problem that prevents them."""

    tier: Tier = Tier.CONTAINER
    landlock: int = 0
    problem: str = ""

    def packed(self) -> bytes:
        """The bytes for `parse_reply`."""
        return json.dumps({"version": VERSION, **asdict(replace(self, problem=self.problem[:500]))}).encode()


def parse_reply(packet: bytes) -> WorkshopReply:
    """The reply in a packet; raises `BadRequest`."""
    match _loaded(packet):
        case {"tier": str(tier), "landlock": int(landlock), "problem": str(problem)} if tier in set(Tier):
            return WorkshopReply(Tier(tier), landlock, problem)
    raise BadRequest("the service of commands answers with something else; start both from the same image")


def pack_request(request: WorkshopRequest | None) -> bytes:
    """The packet for a command; without one, it asks how commands are confined."""
    values: dict[str, object] = {"version": VERSION, "command": None}
    if request is not None:
        values |= asdict(request)
        values["command"] = {k: v for k, v in asdict(request.command).items() if k not in _OWN}
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")


def parse_request(packet: bytes, descriptors: int) -> WorkshopRequest | None:
    """The request in a packet that came with so many descriptors; raises `BadRequest`."""
    match _loaded(packet):
        case {"command": None} if not descriptors:
            return None
        case {"command": dict(values), "folder": str(folder), "apart": bool(apart)} if descriptors == DESCRIPTORS + (
            folder != "" and not apart
        ) and (_temporary(folder) or (folder == "" and not apart)):
            return WorkshopRequest(_command(values), folder, apart)
    raise BadRequest(f"this is not a request of version {VERSION}; start both services from the same image")


def _loaded(packet: bytes) -> object:
    """The JSON of a packet of this version; None if it isn't one."""
    try:
        values: object = json.loads(packet)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) and values.get("version") == VERSION else None


def _command(values: dict[str, object]) -> Command:
    match values:
        case {
            "folder": str(folder),
            "environment": dict(environment),
            "limits": dict(limits),
            "network": str(network),
            **texts,
        }:
            arguments, read_only, hidden, reads = (_texts(texts.pop(name, None)) for name in TUPLES)
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
    """The limits of a packet: whole numbers, except the seconds."""
    for name, value in values.items():
        number = type(value) is int or (name == "seconds" and type(value) is float and math.isfinite(value))
        if name not in asdict(usual) or not number or not 0 <= float(str(value)) < 2**53:
            raise BadRequest("the command has a limit that there cannot be")
    return Limits(**{**asdict(usual), **{str(name): value for name, value in values.items()}})
