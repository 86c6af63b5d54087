"""The state that a folder and the map last agreed on; stored outside the folder, where no tool can write."""

import asyncio
import fcntl
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from gateway.config.data.files import read_regular, replace_regular
from gateway.domain.files import FileContent

MAX_BYTES = 100 * 1024**2
_AGAIN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class StateFile:
    """Of one folder and one place in a store."""

    path: Path

    @classmethod
    def of(cls, folder: Path, root: Path, owner: str, place: str) -> "StateFile":
        """In a folder of such files."""
        key = json.dumps([os.path.realpath(root), owner, place])
        return cls(folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json")

    def load(self) -> Mapping[str, FileContent]:
        """The contents that both sides had; none if the file is missing or damaged, so that nothing is deleted."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads(read_regular(self.path, MAX_BYTES))
            return {path: FileContent(*content) for path, content in found["base"].items()}
        return {}

    def save(self, base: Mapping[str, FileContent]) -> None:
        """Replace it; a crash leaves the old one, which says less, and never what isn't so."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        contents = {path: astuple(content) for path, content in base.items()}
        replace_regular(self.path, json.dumps({"base": contents}).encode())

    def staging(self, number: int) -> Path:
        """Where a content is on its way between the folder and the store."""
        return self.path.with_suffix(f".{number}.part")

    def clear(self) -> None:
        """Delete what a process left there when it was killed."""
        for left in self.path.parent.glob(f"{self.path.stem}.*.part"):
            left.unlink(missing_ok=True)

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None, None]:
        """One process at a time works on a folder."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                await asyncio.sleep(_AGAIN_SECONDS)
            yield
        finally:
            os.close(file)
