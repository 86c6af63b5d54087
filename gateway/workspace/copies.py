"""Copies of a workspace, for runs that are to change nothing in it."""

import shutil
import time
from pathlib import Path

LEFT_OUT = ("sessions", "memory", "todo")
"""What the gateway writes there itself."""
KEPT_SECONDS = 7 * 86_400.0


def copied(root: Path, copies: Path, name: str) -> None:
    """Make `copies/name` from `root`, unless it is there. Copies of a week ago are deleted. Links are not followed."""
    if (copies / name).exists():
        return
    copies.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in copies.iterdir():
        if old.lstat().st_mtime < time.time() - KEPT_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    half = copies / f".{name}"
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(root, half, symlinks=True, ignore=lambda at, _: LEFT_OUT if Path(at) == root else ())
    half.touch()  # it has the age of the folder that it was made from
    half.rename(copies / name)
