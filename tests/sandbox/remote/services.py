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
mount -t tmpfs -o mode=755 root /mnt
for each in /*; do
    if [ -L "$each" ]; then cp -P "$each" /mnt/; continue; fi
    [ -d "$each" ] || continue
    mkdir -p "/mnt$each"
    case "$each" in
        /proc) mount -t proc proc /mnt/proc ;;
        /tmp) mount -t tmpfs -o mode=1777,size=64m tmp /mnt/tmp ;;
        /dev) mount --rbind /dev /mnt/dev ;;
        /mnt|/run|/sys) ;;
        *) mount --bind "$each" "/mnt$each"; mount -o remount,bind,ro "/mnt$each" ;;
    esac
done
case "$ROOT" in
    /tmp/*) mkdir -p "/mnt$ROOT"; mount --bind "$ROOT" "/mnt$ROOT"; mount -o remount,bind,ro "/mnt$ROOT" ;;
esac
for name in workspace sockets; do
    mkdir -p "/mnt$BASE/$name"
    mount --bind "$BASE/$name" "/mnt$BASE/$name"
done
for name in sessions memory; do
    mount --bind "$BASE/workspace/$name" "/mnt$BASE/workspace/$name"
    mount -o remount,bind,ro "/mnt$BASE/workspace/$name"
done
mount -o remount,ro /mnt
"$1" -P -c 'from gateway.sandbox.jail.namespaces import start_loopback; start_loopback()'  # as Docker does
exec chroot /mnt setpriv --reuid="$USER_ID" --regid="$USER_ID" --clear-groups --no-new-privs --bounding-set=-all \
    --inh-caps=-all sh -c '"$@"; exit' init "$@"
"""
_SERVE = """
import asyncio
from pathlib import Path
from gateway.sandbox.command import Tier
from gateway.sandbox.remote.service import ContainerWorkshop
from gateway.sandbox.remote.service import Service
base = Path({base!r})
jail = ContainerWorkshop(Path("/tmp"), {arguments})
asyncio.run(Service(base / "sockets", base / "workspace", jail).serve())
"""


@cache
def containers() -> bool:
    """Whether this machine lets the tests make such namespaces."""
    return os.getuid() == 0 and shutil.which("unshare") is not None and sys.platform == "linux"


needs_containers = pytest.mark.skipif(not containers(), reason="only root can make a container's namespaces")


@asynccontextmanager
async def service(base: Path, arguments: str = "", user: int = 0, python: str = sys.executable) -> AsyncIterator[Path]:
    """The socket of a service for `base/workspace`, below /tmp, with these arguments for its jail.

    It is started again when it ends, as compose does.
    """
    for name in ("sockets", "workspace/sessions", "workspace/memory"):
        (base / name).mkdir(parents=True, exist_ok=True)
        os.chown(base / name, user, user)
    path = base / "sockets/workshop.sock"
    line = _SERVE.format(base=str(base), arguments=arguments)
    keeping = asyncio.create_task(_keep(base, user, python, "-P", "-c", line))
    try:
        await eventually(path.exists, seconds=20)
        yield path
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _keep(base: Path, user: int, *line: str) -> None:
    while True:
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child", "sh", "-c", _ENTER, "enter"),
            *line,
            cwd="/",
            env={
                "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",  # chroot is there
                "PYTHONPATH": str(ROOT),
                "ROOT": str(ROOT),
                "BASE": str(base),
                "USER_ID": str(user),
            },
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
