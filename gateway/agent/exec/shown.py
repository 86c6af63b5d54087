"""The files that a line of shell names, as a person reads it in the question whether it may run."""

import hashlib
import os
import re
import shlex
from contextlib import suppress
from pathlib import Path

from gateway.workspace.files.disk import FileState, measure
from gateway.workspace.files.pages import MOST
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.uploads import UPLOADS

MAX_WORDS, MAX_FOLDERS = 1_000, 30
FILED = frozenset({UPLOADS, "tool-results", "command-output", "answers"})
"""Folders that the gateway fills by itself; they count if a line names one, or has a pattern that may mean one."""
_BETWEEN = re.compile(r"[^\w./@%+,-]+")
_PATTERN = re.compile(r"[*?\[{$`|\\]")


def shown_digest(root: Path, line: str, folder: str) -> str:
    """A hash of the files that the line names, from its folder or from another word of it. Blocks."""
    words = set(_BETWEEN.split(line))
    with suppress(ValueError):
        words.update(shlex.split(line))
    named = sorted(word for word in words if 0 < len(word) < 1024)[:MAX_WORDS]
    paths = {os.path.normpath(os.path.join(folder, at, word)) for at in ("", *named[:MAX_FOLDERS]) for word in named}
    paths |= FILED if _PATTERN.search(line) else set()
    return hashlib.sha256(
        "".join(f"{path} {_state(root, path)}\n" for path in sorted(paths)).encode("utf-8", "replace")
    ).hexdigest()


def _state(root: Path, path: str) -> str:
    """The hash of a file, or the state of a folder in `FILED`, which each new entry changes; "" for anything else."""
    with suppress(OSError, WorkspaceError):
        return FileState.of(os.lstat(root / path)).hex() if path in FILED else measure(root, path, MOST).sha256
    return ""
