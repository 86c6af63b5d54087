"""Clears away what is over, once a day, a little at a time."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog

from gateway.domain.clock import Clock
from gateway.domain.ids import TaskId
from gateway.store.connection.pool import Connection, Database
from gateway.store.engine import retention

PAUSE_SECONDS = 0.2
"""Between two batches: others want the database, too."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Clearing:
    """`keep` says for how long what is over is kept; None: for ever. `tasks` is the folder of the files of trees."""

    database: Database
    tasks: Path
    keep: Callable[[], timedelta | None]
    clock: Clock

    async def run(self) -> None:
        """Clear all that is old enough by now."""
        now = self.clock.now()
        await self.database.run(lambda tx: retention.note_sizes(tx, now.date()))
        if (keep := self.keep()) is None:
            return
        before, trees = now - keep, 0
        while over := await self.database.run(lambda tx: retention.clear_trees(tx, before)):
            trees += len(over)
            await asyncio.to_thread(self._remove, over)
            await asyncio.sleep(PAUSE_SECONDS)
        deliveries = await self._all(lambda tx: retention.clear_deliveries(tx, before))
        buttons = await self._all(lambda tx: retention.clear_buttons(tx, before))
        if trees or deliveries or buttons:
            log.info("retention.cleared", tasks=trees, deliveries=deliveries, buttons=buttons)

    async def _all(self, batch: Callable[[Connection], Awaitable[int]]) -> int:
        total = 0
        while count := await self.database.run(batch):
            total += count
            await asyncio.sleep(PAUSE_SECONDS)
        return total

    def _remove(self, over: Collection[TaskId]) -> None:
        """Of this folder alone: a link in its place leads nowhere."""
        for master in over if not self.tasks.is_symlink() else ():
            shutil.rmtree(self.tasks / str(master), ignore_errors=True)
