"""Two versions measured in turns on this machine, since machines, and their hours, differ by half."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from statistics import median_low
from typing import Any

from pydantic import TypeAdapter

from benchmarks.turns import Measured
from tests.journeys.process import ROOT


def alternately(revision: str, rounds: int) -> tuple[Measured, Measured]:
    """This version and that of the revision, medians of so many runs each; raises `SystemExit` if one fails."""
    other = _checkout(revision)
    runs = [(_measured(other), _measured(ROOT)) for _ in range(rounds)]
    return _middle([ours for _, ours in runs]), _middle([theirs for theirs, _ in runs])


def _middle(runs: Sequence[Any]) -> Any:
    """The median of each figure, in dataclasses of dataclasses of numbers."""
    first = runs[0]
    if not is_dataclass(first) or isinstance(first, type):
        return median_low(runs)
    return replace(
        first, **{field.name: _middle([getattr(run, field.name) for run in runs]) for field in fields(first)}
    )


def _checkout(revision: str) -> Path:
    """The revision in a folder of its own, with what its lock names."""
    commit = _done("git", "-C", str(ROOT), "rev-parse", "--verify", f"{revision}^{{commit}}")
    folder = ROOT / "build" / "against" / commit
    if not folder.exists():
        _done("git", "-C", str(ROOT), "worktree", "add", "--detach", str(folder), commit)
    _done("make", "-C", str(folder), "setup")
    return folder


def _measured(folder: Path) -> Measured:
    figures = folder / "build" / "benchmarks.json"
    _done(str(folder / ".venv/bin/python"), "-m", "benchmarks", "--json", str(figures), cwd=folder)
    return TypeAdapter(Measured).validate_python(json.loads(figures.read_text(encoding="utf-8")))


def _done(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed with code {done.returncode}")
    return done.stdout.strip()
