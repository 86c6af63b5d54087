"""The child process for CPU-heavy work, one job after another; `executor.py` starts it and sends it jobs.

A message is four bytes of length, then that many bytes of JSON. The process imports only the modules of its jobs.
"""

import importlib
import json
import logging
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

log = logging.getLogger(__name__)


class Request(NamedTuple):
    """A job: a function at the top of a module, its arguments, and its memory limit in bytes."""

    module: str
    name: str
    arguments: Sequence[Json]
    memory: int


def main() -> None:
    """Run jobs until standard input ends or the parent process is gone."""
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    requests, replies = _private_pipes()
    threading.Thread(target=_die_with_parent, args=(requests.fileno(),), daemon=True).start()
    with suppress(BrokenPipeError):
        while (request := _receive(requests)) is not None:
            replies.write(run_request(request))


def encode_message(message: Request | JsonObject) -> bytes:
    """The message as bytes, after its length."""
    body = json.dumps(message).encode()
    return LENGTH.pack(len(body)) + body


def run_request(request: Request) -> bytes:
    """Run the job; the reply is `{"value": …}` or `{"failed": kind, "text": one line}`."""
    try:
        return encode_message({"value": _run(request)})
    except SupaclawError as exc:
        kinds = {"owner": OwnerMustAct, "later": TryAgainLater, "job": SupaclawError}
        failed, text = next(kind for kind, error in kinds.items() if isinstance(exc, error)), str(exc)
    except MemoryError:
        failed, text = "job", "needs more memory than it may take"
    except Exception as exc:
        log.exception("cpu.job_broken")
        failed, text = "job", " ".join(f"{type(exc).__name__}: {exc}".split())
    return encode_message({"failed": failed, "text": text})


def _run(request: Request) -> Json:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    # Some systems don't have this limit.
    with suppress(ValueError, OSError):
        soft = request.memory if hard == resource.RLIM_INFINITY else min(request.memory, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    job: Callable[..., Json] = getattr(importlib.import_module(request.module), request.name)
    return job(*request.arguments)


def _receive(stream: BinaryIO) -> Request | None:
    head = stream.read(LENGTH.size)
    body = stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""
    return Request(*json.loads(body)) if body else None


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move the pipes to the parent to new descriptors: standard output then goes to standard error."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def _die_with_parent(requests: int) -> None:
    """End the process when its parent ends, even in the middle of a job."""
    watch = select.poll()
    watch.register(requests, 0)
    watch.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
