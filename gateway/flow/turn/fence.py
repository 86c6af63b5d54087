"""The fence of acts outside: a run that may have lost its task starts none.

A write is stopped by the database, an act is not. So a run acts only within `ACT_WITHIN` seconds of having renewed its
lease, and whoever takes its task over says what an act came to only when that has reached its time limit. What remains
is a process that is stopped in that second, between the look at the clock and the act itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.config.machine import boot_seconds
from gateway.domain.conversation.tools import ToolFailed
from gateway.domain.work.tasks import Claim
from gateway.store.connection.pool import Connection, Database
from gateway.store.engine import tasks

ACT_WITHIN = 1.0
RENEWALS = 3
"""How often the lease is renewed for one act, where each time more than that second went by."""


@dataclass(slots=True)
class Fence:
    """Of one run. Its clock counts the time that the process is stopped or the machine asleep."""

    database: Database
    run: Claim
    clock: Callable[[], float] = boot_seconds
    _renewed: float | None = None

    async def commit(self, write: Callable[[Connection], Awaitable[None]]) -> None:
        """Run `write`, which calls `tasks.progress`, in one transaction; raises `RunLost`."""
        began = self.clock()
        await self.database.run(write)
        self._renewed = began

    async def cross(self) -> None:
        """Return when an act may start at once; raises `RunLost`, or `ToolFailed` if the database is too slow."""
        renewals = 0
        while self._renewed is None or self.clock() - self._renewed > ACT_WITHIN:
            if renewals == RENEWALS:
                message = (
                    "The database didn't confirm within a second that this may run, so nothing was done; try again."
                )
                raise ToolFailed("not_started", message)
            await self.commit(self._extend)
            renewals += 1

    async def outlast(self, limit: float) -> None:
        """Wait until what a process began that lost this task has come to an end, if it takes `limit` seconds."""
        if limit and self.run.silent_for is not None:
            await asyncio.sleep(ACT_WITHIN + limit - self.run.silent_for.total_seconds())

    async def _extend(self, tx: Connection) -> None:
        await tasks.extend(tx, self.run)
