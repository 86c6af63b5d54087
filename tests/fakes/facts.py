"""What a channel remembers, in one file; `down` while it can't be reached."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.domain.errors import TryAgainLater


@dataclass(slots=True)
class FactsInFile:
    path: Path
    down: bool = False

    async def load(self) -> Mapping[str, str]:
        if self.down:
            raise TryAgainLater("the database is down")
        return json.loads(self.path.read_text()) if self.path.exists() else {}  # type: ignore[no-any-return]

    async def save(self, changes: Mapping[str, str | None]) -> None:
        entries = dict(await self.load())
        for name, value in changes.items():
            entries.pop(name, None)
            if value is not None:
                entries[name] = value
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(entries))
