"""The child process that does CPU-heavy work, one job after another; `cpu.py` starts it and speaks to it.

A message is four bytes of length and that much JSON. Nothing is imported but the module of the job at hand, and a
defect in a job ends the process: its last words on standard error are what the parent tells.
"""

import importlib
import json
import os
import resource
import select
import signal
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater
from gateway.domain.json import Json, JsonObject

NICENESS = 10
LENGTH = struct.Struct(">I")


class Request(NamedTuple):
    """A job: a function at the top of a module, what it is given, and how many bytes of memory it may take."""

    module: str
    name: str
    arguments: Sequence[Json]
    memory: int


def main() -> None:
    """Work until standard input ends, or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    requests, replies = _private_pipes()
    threading.Thread(target=_die_with_parent, args=(requests.fileno(),), daemon=True).start()
    with suppress(BrokenPipeError):
        while (request := _receive(requests)) is not None:
            replies.write(packed(answer(request)))


def packed(message: Request | JsonObject) -> bytes:
    """A message as it travels."""
    body = json.dumps(message).encode()
    return LENGTH.pack(len(body)) + body


def answer(request: Request) -> JsonObject:
    """Do the job: `{"value": …}`, or `{"failed": kind, "text": one line}` for what a job may refuse."""
    try:
        value = _run(request)
    except MemoryError:
        return {"failed": "memory", "text": "needs more memory than it may take"}
    except SupaclawError as exc:
        return {"failed": _kind(exc), "text": str(exc)}
    return {"value": value}


def _run(request: Request) -> Json:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    # Not every system has this limit.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (request.memory, hard))
    job: Callable[..., Json] = getattr(importlib.import_module(request.module), request.name)
    return job(*request.arguments)


def _kind(error: SupaclawError) -> str:
    match error:
        case OwnerMustAct():
            return "owner"
        case TryAgainLater():
            return "later"
        case _:
            return "job"


def _receive(stream: BinaryIO) -> Request | None:
    head = stream.read(LENGTH.size)
    body = stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""
    return Request(*json.loads(body)) if body else None


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The two pipes to the parent under numbers of their own: what a job prints goes to standard error."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def _die_with_parent(requests: int) -> None:
    """In the middle of a job, too: nobody waits for its result any more."""
    watch = select.poll()
    watch.register(requests, 0)
    watch.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
