"""Temporary folders for files on their way into the CPU process."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class ScratchFolder:
    """A folder at `path` for one user in one process; the first use deletes the remains of a killed process."""

    path: Path
    _sweeping: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _swept: bool = field(default=False, init=False)

    @asynccontextmanager
    async def new(self) -> AsyncIterator[Path]:
        """Create an empty folder in it, which is deleted at the end."""
        async with self._sweeping:
            if not self._swept:
                await asyncio.to_thread(shutil.rmtree, self.path, ignore_errors=True)
                self._swept = True
        folder = await asyncio.to_thread(self._make)
        try:
            yield folder
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _make(self) -> Path:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self.path))
