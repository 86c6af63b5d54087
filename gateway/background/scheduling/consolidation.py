"""The timer of the consolidation: whoever has new memories gets a task, once a day."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from gateway.domain.work.tasks import Lane
from gateway.store.connection.pool import Connection, Database
from gateway.store.engine import tasks
from gateway.store.memory import consolidation

LOOK_EVERY = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Consolidation:
    """`woken` is called when there is a task to claim."""

    database: Database
    woken: Callable[[], None]

    async def look(self) -> None:
        """Queue what is due; several gateways on one database queue it once."""
        if await self.database.run(_queue):
            self.woken()


async def _queue(tx: Connection) -> int:
    due = await consolidation.due(tx)
    for principal in due:
        await tasks.create(tx, principal, "consolidate", Lane.AGENTS, dedupe=f"consolidate:{principal}")
    return len(due)
