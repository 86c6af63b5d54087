"""Which tasks this instance can run: an agent's task runs where the workspace is, and files come in by a channel."""

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import InstanceId
from gateway.store.connection.pool import Connection, Database
from gateway.store.engine import instances
from gateway.store.engine.instances import Kind

EVERY_SECONDS = 20.0
GONE_SECONDS = 600.0
"""A gateway works in its own folder once the machine with the workspace has been away for so long."""
WORKSPACE = "workspace"
ANYWHERE = frozenset({"consolidate", "summarise"})
"""Kinds of tasks that need no file."""
AGENTS = frozenset({"agent", "heartbeat"})
"""Those that nobody waits for in a chat."""
BY_CHANNEL = frozenset({"ingest"})

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Workplace:
    """`home` is the instance whose data folder this is: a worker's own, or that of the gateway it runs beside.

    While an object store keeps it the same everywhere (`synced`), agents' tasks run on every instance.
    """

    database: Database
    kind: Kind
    home: InstanceId
    synced: Callable[[], bool] = lambda: False
    elsewhere: str | None = field(default=None, init=False)
    """The machine that has the workspace: "" for this one, None before there is one."""

    async def look(self) -> None:
        """Ask where the workspace is; a gateway takes it if it is nowhere. During an outage it stays where it was."""
        try:
            before, self.elsewhere = self.elsewhere, await self.database.run(self._where)
        except TryAgainLater:
            return
        if self.elsewhere != before and not self.here:
            effect = "tasks of agents wait for it; docs/deploy.md says how machines share one"
            log.warning("workspace.elsewhere", machine=self.elsewhere or "none yet", effect=effect)

    @property
    def here(self) -> bool:
        """Whether this instance has the workspace."""
        return self.elsewhere == ""

    def able(self, kind: str) -> bool:
        """Whether a task of this kind can run here. A gateway answers its own chats in any case."""
        if self.kind == "worker":
            return kind in ANYWHERE or self._has_files(kind) or (self.here and kind not in BY_CHANNEL)
        return self.here or self._has_files(kind) or kind not in AGENTS

    def _has_files(self, kind: str) -> bool:
        return kind in AGENTS and self.synced()

    async def _where(self, tx: Connection) -> str | None:
        if self.kind == "gateway":
            return await instances.settle(tx, WORKSPACE, self.home, gone=GONE_SECONDS)
        return await instances.home(tx, WORKSPACE, self.home)
