"""The timer of the checkpoints: the workspace is kept every few minutes, if anything in it has changed."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog

from gateway.background.cpu import Cpu
from gateway.domain.clock import Clock
from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.domain.ids import MessageId
from gateway.store import messages
from gateway.store.pool import Database
from gateway.workspace.checkpoints import jobs as checkpoints

FIRST_SECONDS = 30.0
"""A start has more urgent things to do."""

LOOK_SECONDS = 5.0
"""How soon a changed interval shows."""

COMMIT_SECONDS = 600.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Checkpointing:
    """Makes checkpoints of `workspace` in `store`; a failure is logged, shown in `state`, and tried again next time."""

    cpu: Cpu
    database: Database
    workspace: Path
    store: Path
    every: Callable[[], timedelta | None]
    clock: Clock
    state: str = "none yet"

    async def run(self) -> None:
        """Go on until cancelled."""
        due = self.clock.monotonic() + FIRST_SECONDS
        while True:
            await self.clock.sleep(LOOK_SECONDS)
            every = self.every()
            if every is None:
                self.state = "off"
            elif self.clock.monotonic() >= due:
                await self.make("timer")
                due = self.clock.monotonic() + every.total_seconds()
            else:
                due = min(due, self.clock.monotonic() + every.total_seconds())

    async def make(self, reason: str) -> None:
        """Make one now, if anything has changed. Never raises."""
        try:
            made = await self.cpu.run(
                checkpoints.commit,
                str(self.workspace),
                str(self.store),
                await self._last_message(),
                reason,
                seconds=COMMIT_SECONDS,
            )
            packs = await self.cpu.run(checkpoints.repack, str(self.store), seconds=COMMIT_SECONDS)
        except SupaclawError as exc:
            log.warning("checkpoint.failed", error=str(exc))
            self.state = f"failed at {self._now()}: {exc}"
        except Exception as exc:
            log.exception("checkpoint.broken")
            self.state = f"failed at {self._now()}: {exc}"
        else:
            log.info("checkpoint.made", made=made, packs=packs)
            self.state = f"last at {self._now()}"

    async def _last_message(self) -> MessageId | None:
        """With the database away the files are kept all the same."""
        try:
            async with self.database.connection() as conn:
                return await messages.last_id(conn)
        except TryAgainLater as exc:
            log.warning("checkpoint.without_message", error=str(exc))
            return None

    def _now(self) -> str:
        return f"{self.clock.now():%Y-%m-%d %H:%M:%S} UTC"
