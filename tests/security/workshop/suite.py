"""The attacks in a process of their own, as the user that a gateway would be."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gateway.sandbox import landlock
from gateway.sandbox.command import Tier
from gateway.sandbox.workshop import LEAST_WITHOUT_NAMESPACES

ROOT = Path(__file__).parents[3]
USER = 10001
"""As in the image; root runs the attacks as this one."""
NO_PYTHON = "no Python that an ordinary user can run"


@dataclass(frozen=True)
class Result:
    rows: list[tuple[str, bool, str]]
    skipped: str = ""


def run(tier: Tier, version: int, *, short: bool = False, root: bool = False) -> Result:
    """All attacks, or without what takes long; `version` of Landlock, 0 for the kernel's own."""
    known = landlock.abi()
    if version > known:
        return Result([], f"this kernel has Landlock {known}")
    if tier is Tier.LANDLOCK and (version or known) < LEAST_WITHOUT_NAMESPACES:
        return Result([], f"off before Landlock {LEAST_WITHOUT_NAMESPACES}")
    told = _told("attacks", tier, str(version), "short" * short, apart=os.getuid() == 0 and not root)
    if told is None:
        return Result([], NO_PYTHON)
    return Result([(name, held, answer) for name, held, answer in json.loads(told)])


def outside() -> dict[str, bool] | None:
    """Which attacks succeed without a jail; None if no ordinary user can run them."""
    told = _told("outside", apart=os.getuid() == 0)
    return None if told is None else json.loads(told)


def _told(module: str, *arguments: str, apart: bool) -> bytes | None:
    python = _python(USER) if apart else sys.executable
    if not python:
        return None
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="attack") as folder:
        if apart:
            os.chown(folder, USER, USER)
        done = subprocess.run(
            [python, "-m", f"tests.security.workshop.{module}", f"{folder}/g", *arguments],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
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
def _python(user: int) -> str:
    """One that this user can run, with our code."""
    for path in (sys.executable, "/usr/bin/python3"):
        line = [path, "-c", "import gateway.sandbox.workshop, tests.security.workshop.attacks"]
        environ = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(line, cwd="/", env=environ, user=user, group=user, capture_output=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return path
    return ""
