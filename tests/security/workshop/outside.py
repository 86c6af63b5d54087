"""The same attacks without a jail, by an ordinary user: what succeeds here was refused by the jail."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from gateway.sandbox.command import Tier
from gateway.sandbox.jail import landlock
from tests.security.workshop.attacks import (
    CALL,
    CALLS,
    CHANGES,
    FILES,
    NET,
    PYTHON,
    RACE,
    SECRET,
    SOCKETS,
    Ground,
    ground,
    unchangeable,
    values_of,
)

NOT_HARMLESS = {
    "files: write to the system's temporary folder", "calls: slow its user down", "calls: shared memory",
    "calls: semaphores", "calls: message queues", "calls: POSIX message queues", "calls: add a key",
    "network: the metadata of a cloud",
}  # fmt: skip
"""What would stay, or reach others."""


async def succeeded(place: Ground) -> dict[str, bool]:
    """Each attack that is tried, and whether it did."""
    values, found = values_of(place), {}
    for name, line in FILES.items():
        if f"files: {name}" not in NOT_HARMLESS:
            place.lay()
            before = unchangeable(place)
            code, output = _run(place, line.format(**values))
            found[f"files: {name}"] = code == 0 or SECRET in output or unchangeable(place) != before
    for name, code in CHANGES.items():
        place.lay()
        before, source = unchangeable(place), RACE.format(**values) + code.format()
        _run(place, f"{PYTHON} -I -S -c {shlex.quote(source)}")
        found[f"changes: {name}"] = unchangeable(place) != before
    place.lay()
    for name, code in CALLS.items():
        if f"calls: {name}" not in NOT_HARMLESS:
            source = CALL + code.format(**{**values, "pid": place.victim.pid})
            found[f"calls: {name}"] = "GOT" in _run(place, f"{PYTHON} -I -S -c {shlex.quote(source)}")[1]
    for name, (family, kind, address) in SOCKETS.items():
        if f"network: {name}" not in NOT_HARMLESS:
            source = NET.format(family, kind, address.format(**values))
            found[f"network: {name}"] = "GOT" in _run(place, f"{PYTHON} -I -S -c {shlex.quote(source)}")[1]
    return found


def _run(place: Ground, line: str) -> tuple[int, str]:
    done = subprocess.run(
        ["/bin/bash", "-c", line], cwd=place.workspace / "work", capture_output=True, check=False, timeout=30,
        env={"PATH": os.environ["PATH"], "HOME": str(place.base)}, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")


async def main(base: str) -> None:
    assert os.getuid() != 0, "as root nothing of it is harmless"
    async with ground(Path(base), Tier.NAMESPACES, landlock.abi()) as place:
        sys.stdout.write(json.dumps(await succeeded(place)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
