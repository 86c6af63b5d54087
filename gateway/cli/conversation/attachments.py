"""Files to send with the next message from a terminal."""

import glob
import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.cli.terminal.console import echo
from gateway.domain.errors import OwnerMustAct

COMMAND = "/attach"


@dataclass(slots=True)
class PendingFiles:
    """Files attached and not yet sent."""

    _files: list[Path] = field(default_factory=list)

    def handle(self, line: str) -> bool:
        """Run the line if it is `/attach PATH`, and return whether it is; raises `OwnerMustAct`."""
        command, _, rest = line.partition(" ")
        if command != COMMAND:
            return False
        self.add(_paths(rest.strip()))
        names = ", ".join(file.name for file in self._files) or "nothing yet; write /attach PATH"
        echo(f"Sent with your next message: {names}", error=True)
        return True

    def add(self, files: Iterable[Path]) -> None:
        """Attach files; raises `OwnerMustAct` if one is not a file."""
        for file in files:
            if not file.is_file():
                raise OwnerMustAct(f"{file} is not a file")
            self._files.append(file)

    def take(self) -> tuple[Path, ...]:
        """Return all of them and clear the list."""
        files = tuple(self._files)
        self._files.clear()
        return files


def completions(line: str) -> list[str]:
    """The completions of an `/attach` line; none for other lines."""
    command, space, typed = line.partition(" ")
    if command != COMMAND or not space:
        return []
    found = sorted(glob.iglob(glob.escape(os.path.expanduser(typed)) + "*"))
    return [f"{COMMAND} {path}{'/' if os.path.isdir(path) else ''}" for path in found]


def _paths(text: str) -> list[Path]:
    """The text as one path if that is a file, else as shell-quoted paths."""
    whole = Path(text).expanduser()
    if whole.is_file() or not text:
        return [whole] if text else []
    try:
        return [Path(word).expanduser() for word in shlex.split(text)]
    except ValueError:
        return [whole]
