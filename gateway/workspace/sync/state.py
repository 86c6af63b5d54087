"""What a folder and the map last agreed on; kept outside of the folder, where no tool can write."""

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
from gateway.workspace.files.states import State
from gateway.workspace.sync.plan import Seen

MAX_BYTES = 100 * 1024**2
_AGAIN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Known:
    """`base` is what both sides had at the last agreement, `seen` what was read of the files; only a cache."""

    base: Mapping[str, FileContent]
    seen: Mapping[str, Seen]


@dataclass(frozen=True, slots=True)
class StateFile:
    """Of one folder and one place in a store."""

    path: Path

    @classmethod
    def of(cls, folder: Path, root: Path, owner: str, place: str) -> "StateFile":
        """In a folder of such files."""
        key = json.dumps([os.path.realpath(root), owner, place])
        return cls(folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json")

    def load(self) -> Known:
        """Nothing is known of a folder without such a file, or with a damaged one: nothing is deleted then."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads(read_regular(self.path, MAX_BYTES))
            base = {path: FileContent(*content) for path, content in found["base"].items()}
            seen = {
                path: Seen(FileContent(*content), State(*state)) for path, (content, state) in found["seen"].items()
            }
            return Known(base, seen)
        return Known({}, {})

    def save(self, known: Known) -> None:
        """Replace it; a crash leaves the old one, which says less, and never what isn't so."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        base = {path: astuple(content) for path, content in known.base.items()}
        seen = {path: (astuple(each.content), astuple(each.state)) for path, each in known.seen.items()}
        replace_regular(self.path, json.dumps({"base": base, "seen": seen}).encode())

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
