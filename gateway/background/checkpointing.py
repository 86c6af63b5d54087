"""Making checkpoints: the workspace is kept, if anything in it has changed."""

from dataclasses import dataclass
from pathlib import Path

import structlog

from gateway.background.cpu import run_alone
from gateway.domain.clock import Clock
from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.domain.ids import MessageId
from gateway.domain.json import Json
from gateway.store.connection.pool import Database
from gateway.store.transcript import messages
from gateway.workspace.checkpoints import jobs

JOB_SECONDS = 600.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Checkpointing:
    """Makes checkpoints of `workspace` in `store`; a failure is logged, shown in `state`, and tried again next time."""

    database: Database
    workspace: Path
    store: Path
    clock: Clock
    state: str = "none yet"

    async def run(self) -> None:
        """Make one, and note how that went. Never raises."""
        self.state = f"{await self.make()} at {self.clock.now():%Y-%m-%d %H:%M:%S} UTC"

    async def make(self) -> str:
        """Make one now, if anything has changed, and say how that went. Never raises."""
        try:
            made = await self.keep("timer")
        except Exception as exc:
            log.warning("checkpoint.failed", error=str(exc), exc_info=not isinstance(exc, SupaclawError))
            return f"failed ({exc})"
        log.info("checkpoint.made", made=made)
        return "last"

    async def keep(self, reason: str) -> Json:
        """Make one now, if anything has changed; raises `SupaclawError`."""
        places = str(self.workspace), str(self.store)
        # It may take minutes, and a turn may wait for a file to be read.
        return await run_alone(jobs.commit, *places, await self._last_message(), reason, seconds=JOB_SECONDS)

    async def _last_message(self) -> MessageId | None:
        """With the database away the files are kept all the same."""
        try:
            async with self.database.connection() as conn:
                return await messages.last_id(conn)
        except TryAgainLater as exc:
            log.warning("checkpoint.without_message", error=str(exc))
            return None
