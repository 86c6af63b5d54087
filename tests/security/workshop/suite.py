"""The attacks in a process of their own, as the user that a gateway would be."""

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gateway.sandbox.command import Tier
from gateway.sandbox.jail import landlock
from tests.sandbox.remote.services import containers, service

ROOT = Path(__file__).parents[3]
CODE = f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}"
"""With the packages, as far as another Python can load them."""
USER = 10001
"""As in the image; root runs the attacks as this one."""
NO_PYTHON = "no Python that an ordinary user can run"


@dataclass(frozen=True)
class Result:
    rows: list[tuple[str, bool, str]]
    skipped: str = ""


def run(tier: Tier, version: int, *, short: bool = False, root: bool = False) -> Result:
    """All attacks, or without what takes long; `version` of Landlock, 0 for the kernel's own.

    In a container, they go through the service of compose, and version -1 is a kernel without any.
    """
    if tier is Tier.CONTAINER:
        return _through_service(version, short=short)
    known = landlock.abi()
    if version > known:
        return Result([], f"this kernel has Landlock {known}")
    told = _told("attacks", tier, str(version), "short" * short, "", apart=os.getuid() == 0 and not root)
    if told is None:
        return Result([], NO_PYTHON)
    return _result(told)


def shells(*, short: bool = False, root: bool = False) -> Result:
    """The attacks on the shell of virtual files."""
    apart = os.getuid() == 0 and not root
    python = _python(USER, "tests.security.workshop.shells") if apart else sys.executable
    told = _told("shells", *["short"] * short, apart=apart, python=python)
    return Result([], NO_PYTHON) if told is None else _result(told)


def _result(told: bytes) -> Result:
    return Result([(name, held, answer) for name, held, answer in json.loads(told)])


def outside() -> dict[str, bool] | None:
    """Which attacks succeed without a jail; None if no ordinary user can run them."""
    told = _told("outside", apart=os.getuid() == 0)
    return None if told is None else json.loads(told)


def _through_service(version: int, *, short: bool) -> Result:
    python = _python(USER) if containers() else ""
    if not python or version > landlock.abi():
        return Result([], "only root can make a container's namespaces, and this kernel's Landlock bounds the versions")
    own = f"landlock={max(0, version)}, " if version else ""

    async def attacked(base: Path) -> bytes:
        async with service(base, f"{own}without={{Tier.NAMESPACES}}", USER, python) as path:
            arguments = (Tier.CONTAINER, str(max(0, version)), "short" * short, str(path))
            return await asyncio.to_thread(_output, python, "attacks", str(base), *arguments, apart=True)

    with tempfile.TemporaryDirectory(dir="/tmp", prefix="attack") as folder:
        base = Path(folder, "g")
        (base / "workspace").mkdir(parents=True)
        for each in (folder, base, base / "workspace"):
            os.chown(each, USER, USER)
        return _result(asyncio.run(attacked(base)))


def _told(module: str, *arguments: str, apart: bool, python: str | None = None) -> bytes | None:
    python = (_python(USER) if apart else sys.executable) if python is None else python
    if not python:
        return None
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="attack") as folder:
        if apart:
            os.chown(folder, USER, USER)
        return _output(python, module, f"{folder}/g", *arguments, apart=apart)


def _output(python: str, module: str, base: str, *arguments: str, apart: bool) -> bytes:
    done = subprocess.run(
        [python, "-m", f"tests.security.workshop.{module}", base, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": CODE, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        check=False,
        timeout=600,
        **({"user": USER, "group": USER, "extra_groups": []} if apart else {}),
    )
    if done.returncode:
        raise AssertionError(done.stderr.decode("utf-8", "replace")[-3000:])
    return done.stdout


@cache
def _python(user: int, *modules: str) -> str:
    """One that this user can run, with our code, and packages if these modules need some; "" for none."""
    for path in (sys.executable, "/usr/bin/python3"):
        needed = ", ".join(("gateway.sandbox.workshop", "tests.security.workshop.attacks", *modules))
        line = [path, "-c", f"import {needed}"]
        environ = {"PYTHONPATH": CODE, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(line, cwd="/", env=environ, user=user, group=user, capture_output=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return path
    return ""
