"""The service of commands as compose starts it: its own mounts, processes and network, and nothing of the gateway's."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually

ROOT = Path(__file__).parents[3]
_ENTER = """
set -e
mount --make-rprivate /
mount --bind "$WORKSPACE" "$WORKSPACE"
for name in sessions memory; do
    mount --bind "$WORKSPACE/$name" "$WORKSPACE/$name"
    mount -o remount,bind,ro "$WORKSPACE/$name"
done
mount -t tmpfs -o mode=1777,size=64m tmp "$SCRATCH"
mount -t proc proc /proc
exec "$@"
"""
_SERVE = """
import asyncio
from pathlib import Path
from gateway.sandbox.command import Tier
from gateway.sandbox.remote.container import ContainerWorkshop
from gateway.sandbox.remote.service import Service
base = Path({base!r})
jail = ContainerWorkshop(base / "container-tmp", {arguments})
asyncio.run(Service(base / "sockets", base / "workspace", jail).serve())
"""


@cache
def containers() -> bool:
    """Whether this machine lets the tests make such namespaces."""
    return os.getuid() == 0 and shutil.which("unshare") is not None and sys.platform == "linux"


needs_containers = pytest.mark.skipif(not containers(), reason="only root can make a container's namespaces")


@asynccontextmanager
async def service(base: Path, arguments: str = "") -> AsyncIterator[Path]:
    """The socket of a service for `base/workspace`, with these arguments for its jail.

    It is started again when it ends, as compose does.
    """
    for name in ("sockets", "container-tmp", "workspace/sessions", "workspace/memory"):
        (base / name).mkdir(parents=True, exist_ok=True)
    path = base / "sockets/workshop.sock"
    line = _SERVE.format(base=str(base), arguments=arguments)
    keeping = asyncio.create_task(_keep(base, line))
    try:
        await eventually(path.exists, seconds=20)
        yield path
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _keep(base: Path, line: str) -> None:
    while True:
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child"),
            *("sh", "-c", _ENTER, "enter", "sh", "-c", 'setpriv --bounding-set=-all --no-new-privs "$@"; exit', "init"),
            *(sys.executable, "-P", "-c", line),
            cwd="/",
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "TMPDIR": str(base / "container-tmp"),
                "SCRATCH": str(base / "container-tmp"),
                "WORKSPACE": str(base / "workspace"),
            },
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
