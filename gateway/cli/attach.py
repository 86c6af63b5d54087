"""Files that go with the next message of a terminal."""

import glob
import os
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.domain.errors import OwnerMustAct

COMMAND = "/attach"


@dataclass(slots=True)
class Tray:
    """What was attached and not sent yet."""

    _files: list[Path] = field(default_factory=list)

    def heeds(self, line: str) -> bool:
        """Whether it was `/attach PATH`, which is done then; raises `OwnerMustAct`."""
        command, _, rest = line.partition(" ")
        if command != COMMAND:
            return False
        self.add(_paths(rest.strip()))
        names = ", ".join(file.name for file in self._files) or "nothing yet; write /attach PATH"
        print(f"Goes with your next message: {names}", file=sys.stderr)
        return True

    def add(self, files: Iterable[Path]) -> None:
        """Raises `OwnerMustAct` for what is no file."""
        for file in files:
            if not file.is_file():
                raise OwnerMustAct(f"{file} is not a file")
            self._files.append(file)

    def emptied(self) -> tuple[Path, ...]:
        """All of them, to be sent now."""
        files = tuple(self._files)
        self._files.clear()
        return files


def completions(line: str) -> list[str]:
    """The lines that complete this one, where it attaches a file."""
    command, space, typed = line.partition(" ")
    if command != COMMAND or not space:
        return []
    found = sorted(glob.iglob(glob.escape(os.path.expanduser(typed)) + "*"))
    return [f"{COMMAND} {path}{'/' if os.path.isdir(path) else ''}" for path in found]


def _paths(text: str) -> list[Path]:
    """One path as it is typed, or some as a shell quotes them."""
    whole = Path(text).expanduser()
    if whole.is_file() or not text:
        return [whole] if text else []
    try:
        return [Path(word).expanduser() for word in shlex.split(text)]
    except ValueError:
        return [whole]
