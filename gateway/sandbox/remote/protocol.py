"""What the gateway and the service say to each other: one packet each way. A command's input, its output, its errors
and the line that it ends with come along as descriptors."""

import json
import math
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

from gateway.domain.errors import SupaclawError
from gateway.sandbox.command import Command, Limits, Tier

VERSION = 1
MAX_REPLY_BYTES = 4096
DESCRIPTORS = 4
_OWN = ("workspace", "tier", "landlock", "reads", "scratch", "network")
"""What the service knows itself, or has nothing of."""
_TEXTS = ("arguments", "read_only", "hidden")


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
class Reply:
    """How commands are confined there; a problem is why none runs."""

    tier: Tier = Tier.CONTAINER
    landlock: int = 0
    problem: str = ""

    def packed(self) -> bytes:
        """As `reply` reads it."""
        return json.dumps({"version": VERSION, **asdict(replace(self, problem=self.problem[:500]))}).encode()


def reply(packet: bytes) -> Reply:
    """Raises `BadRequest`."""
    match _loaded(packet):
        case {"version": 1, "tier": str(tier), "landlock": int(landlock), "problem": str(problem)} if tier in set(Tier):
            return Reply(Tier(tier), landlock, problem)
    raise BadRequest("the service of commands answers with something else; start both from the same image")


def packed(command: Command | None) -> bytes:
    """A command to run; without one, the question how it would be confined."""
    values = None if command is None else {k: v for k, v in asdict(command).items() if k not in _OWN}
    return json.dumps({"version": VERSION, "command": values}, ensure_ascii=False).encode("utf-8", "replace")


def parsed(packet: bytes, descriptors: int) -> Command | None:
    """A request as it was packed, with so many descriptors; raises `BadRequest`."""
    match _loaded(packet):
        case {"version": 1, "command": None} if not descriptors:
            return None
        case {"version": 1, "command": dict(values)} if descriptors == DESCRIPTORS:
            return _command(values)
    raise BadRequest(f"this is not a request of version {VERSION}; start both services from the same image")


def _loaded(packet: bytes) -> object:
    try:
        return json.loads(packet)
    except (ValueError, RecursionError):
        return None


def _command(values: dict[str, object]) -> Command:
    match values:
        case {"folder": str(folder), "environment": dict(environment), "limits": dict(limits), **texts}:
            lists = {name: _texts(texts.pop(name, None)) for name in _TEXTS}
            paths = (folder, *lists["read_only"], *lists["hidden"])
            named = all(_plain(text) for pair in environment.items() for text in pair)
            if not texts and lists["arguments"] and named and all(_inside(path) for path in paths):
                own = Command(lists["arguments"], "", Tier.CONTAINER, 0, folder, environment)
                return replace(
                    own, read_only=lists["read_only"], hidden=lists["hidden"], limits=_limits(own.limits, limits)
                )
    raise BadRequest("the command is not well-formed")


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(_plain(each) for each in value):
        raise BadRequest("the command has something else where texts belong")
    return tuple(value)


def _plain(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _inside(path: str) -> bool:
    return _plain(path) and not path.startswith("/") and ".." not in path.split("/")


def _limits(usual: Limits, values: dict[object, object]) -> Limits:
    """Whole numbers, but for the time."""
    for name, value in values.items():
        number = type(value) is int or (name == "seconds" and type(value) is float and math.isfinite(value))
        if name not in asdict(usual) or not number or not 0 <= float(str(value)) < 2**53:
            raise BadRequest("the command has a limit that there cannot be")
    return Limits(**{**asdict(usual), **{str(name): value for name, value in values.items()}})
