"""The image, run as `docker compose up` runs its services, by the kernel alone.

Its own mount and process namespaces, a read-only root, no capabilities and none to be had; the network is shared, or
there is none. In a changed root the kernel makes no user namespaces, as in a container of Docker's.
"""

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from contextlib import suppress
from pathlib import Path

from docker.check.build import Settings
from docker.check.compose import service

SECONDS = 60.0
_ENTER = """
set -e
mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs -o mode=1777 shm "$ROOT/dev/shm"
mount --rbind /sys "$ROOT/sys"
[ -z "$TEMPORARY" ] || mount -t tmpfs -o mode=1777,size=256m tmp "$ROOT/tmp"
printf '%s' "$MOUNTS" | while read -r target mode source; do
    mount --bind "$source" "$ROOT$target"
    [ "$mode" = rw ] || mount -o remount,bind,ro "$ROOT$target"
done
mount -o remount,bind,ro "$ROOT"
[ -z "$APART" ] || "$PYTHON" -P -c 'from gateway.sandbox.jail.namespaces import start_loopback; start_loopback()'
exec /usr/sbin/chroot "$ROOT" "$@"
"""
_BECOME = (
    *("setpriv", "--reuid=10001", "--regid=10001", "--clear-groups"),
    *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
)


class Container:
    """One container of a service; the volumes that it may mount lie below `folder`."""

    def __init__(
        self, root: Path, settings: Settings, folder: Path, more: dict[str, str], name: str = "supaclaw"
    ) -> None:
        self.data, self.config = folder / "data", folder / "config"
        self._service = service(name, settings, folder)
        self.told: list[str] = []
        self._root = root
        self._settings = settings
        self._environ = {**dict(line.split("=", 1) for line in settings.env), "HOME": "/data"}
        self._environ |= self._service.environ | more
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._heard = asyncio.Condition()
        self.config.mkdir(parents=True, exist_ok=True)
        for volume in (self.data, folder / "sockets"):
            volume.mkdir(mode=0o700, exist_ok=True)
            os.chown(volume, 10001, 10001)

    async def start(self) -> None:
        """Return once it says `ready`."""
        await self.begin()
        await self.hears("^ready$")

    async def begin(self) -> None:
        """Return at once."""
        await self._begin(*self._service.command)

    async def complete(self) -> int:
        """Of a service that does one thing: how it ended."""
        await self.begin()
        return await self._ended()

    async def once(self, *command: str, **environ: str) -> tuple[int, str]:
        """Another command in a container of its own, as `docker compose run` does."""
        await self._begin(*self._settings.entrypoint, *command, **environ)
        return await self._ended(), "\n".join(self.told)

    async def _begin(self, *command: str, **environ: str) -> None:
        self.told.clear()
        lines = [f"{m.target} {'ro' if m.read_only else 'rw'} {m.source}\n" for m in self._service.mounts]
        mounts = {
            "ROOT": str(self._root),
            "MOUNTS": "".join(lines),
            "TEMPORARY": "yes" * self._service.writes_temporary,
            "APART": "" if self._service.networked else "yes",
            "PYTHON": sys.executable,
        }
        apart = () if self._service.networked else ("--net", "--ipc")
        self._process = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "--pid", *apart, "--fork", "--kill-child", "sh", "-c", _ENTER, "enter"),
            *(*_BECOME, *command),
            env={"PATH": os.environ["PATH"], **self._environ, **environ, **mounts},
            stdout=PIPE,
            stderr=STDOUT,
        )
        assert self._process.stdout is not None
        self._reader = asyncio.create_task(self._read(self._process, self._process.stdout))

    async def hears(self, words: str) -> None:
        """Wait for a line of its output; raises `SystemExit` with all of it when there is none."""

        def heard() -> bool:
            return any(re.search(words, line) for line in self.told)

        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS), self._heard:
                await self._heard.wait_for(lambda: heard() or self._process is None)
        if not heard():
            sys.exit(f"it does not say {words!r}, but:\n" + "\n".join(self.told))

    async def run(self, *command: str) -> tuple[int, str]:
        """What `docker exec` does: a command of the image beside what runs in it."""
        process = await asyncio.create_subprocess_exec(
            *("nsenter", f"--target={self.init}", "--mount", "--pid", "--root", "--wd", *_BECOME, *command),
            env={"PATH": os.environ["PATH"], **self._environ},
            stdout=PIPE,
            stderr=STDOUT,
        )
        told, _ = await process.communicate()
        return process.returncode or 0, told.decode().strip()

    async def well(self) -> bool:
        """What the image's own check says."""
        kind, *command = self._settings.healthcheck.test
        assert kind == "CMD", "it is run without a shell"
        code, _ = await self.run(*command)
        return code == 0

    async def stop(self) -> tuple[int, float]:
        """As `docker stop` does; how it ended, and after how long."""
        begun = time.monotonic()
        os.kill(self.init, signal.Signals[self._settings.stop_signal])
        return await self._ended(), time.monotonic() - begun

    async def kill(self) -> None:
        """As a power cut does: everything in it is gone at once."""
        os.kill(self.init, signal.SIGKILL)
        await self._ended()

    async def close(self) -> None:
        """Leave nothing running, whatever happened."""
        if self._process is not None:
            await self.kill()

    @property
    def init(self) -> int:
        """The first process in it, as this machine counts."""
        assert self._process is not None
        return int(Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()[0])

    async def _ended(self) -> int:
        process, reader = self._process, self._reader
        assert process is not None
        assert reader is not None
        await asyncio.wait_for(reader, SECONDS)
        return process.returncode or 0

    async def _read(self, process: Process, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self.told.append(line.decode(errors="replace").rstrip())
            await self._notify()
        await process.wait()
        self._process = None
        await self._notify()

    async def _notify(self) -> None:
        async with self._heard:
            self._heard.notify_all()
