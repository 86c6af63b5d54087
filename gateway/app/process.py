"""The process of a gateway or a worker: notifications, leases, loops, the end."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

import structlog

from gateway.app.assembly import Parts
from gateway.background.upkeep.ram import trim
from gateway.background.upkeep.timers import Loops, keep_running
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import TaskId
from gateway.store.connection.listener import Listener
from gateway.store.work import tasks

LOST = "another gateway took over this database, or a channel, while this one was unresponsive; start it again"
DRAIN_SECONDS = 10.0
TASK_READY = "supaclaw_task"
TASK_CANCELLED = "supaclaw_cancel"
PEOPLE_CHANGED = "supaclaw_people"
SCHEDULES_CHANGED = "supaclaw_schedule"
SECRETS_CHANGED = "supaclaw_secrets"
CHANNELS = (TASK_READY, TASK_CANCELLED, PEOPLE_CHANGED, SCHEDULES_CHANGED, SECRETS_CHANGED)
"""The NOTIFY channels by which processes on one database tell each other what has changed."""

log = structlog.get_logger("gateway")


@dataclass(frozen=True, slots=True)
class Process:
    """One instance on a database."""

    parts: Parts

    def listener(self, dsn: str) -> Listener:
        """The listener that passes notifications of other processes to this process's signals."""
        followed = self.parts.work.traces.subscriptions
        return Listener(dsn, CHANNELS, self.notified, self.listener_connected, subscriptions=followed)

    def notified(self, channel: str, payload: str) -> None:
        """Handle a notification of another process. Never raises, whatever the payload."""
        if self.parts.work.traces.heard(channel):
            return
        if channel == TASK_CANCELLED:
            try:
                self.parts.core.signals.cancelled.publish([TaskId(UUID(payload))])
            except ValueError:
                log.warning("notification.malformed", channel=channel)
        else:
            self._wakeups[channel]()

    def listener_connected(self) -> None:
        """Look for changes from before the listener was connected."""
        for wake in self._wakeups.values():
            wake()

    @property
    def _wakeups(self) -> Mapping[str, Callable[[], None]]:
        signals = self.parts.core.signals
        return {
            PEOPLE_CHANGED: signals.people_changed,
            TASK_READY: signals.tasks.set,
            SCHEDULES_CHANGED: signals.schedules.set,
            SECRETS_CHANGED: signals.secrets.set,
        }

    async def requeue_interrupted(self) -> None:
        """Queue interrupted tasks again; call it once a start, since it counts deaths. Raises `TryAgainLater`."""
        core = self.parts.core
        requeue = tasks.died if self.parts.upkeep.starts.consecutive else tasks.release
        if runs := await core.database.run(lambda tx: requeue(tx, core.instance)):
            log.info("gateway.resumed", runs=runs)

    def watch_lease(self, waiting: Callable[[], bool]) -> None:
        """Exit when another instance has taken over, unless data that only this instance can store is `waiting`."""

        def leave() -> None:
            if not waiting():
                sys.stderr.write(f"supaclaw: {LOST}\n")
                os._exit(1)

        health = self.parts.upkeep.health
        self.parts.core.signals.lost.subscribe_call(leave)
        self.parts.core.database.before = health.check_after_freeze
        signal.signal(signal.SIGCONT, lambda *_: health.check_after_freeze())

    def loops(self, listener: Listener) -> Loops:
        """The loops that every instance runs from its start."""
        return {"worker": self.parts.work.worker.run, "listener": listener.run, **self.parts.upkeep.loops}

    async def warm(self) -> None:
        """Import the modules that the first turn needs, and freeze them for the garbage collector."""
        await self.parts.core.current.model.warm()
        gc.collect()
        gc.freeze()
        await asyncio.to_thread(trim)

    async def close(self) -> None:
        """End the processes and connections of all parts; raises `OwnerMustAct` if another instance has taken over."""
        self.parts.turns.file_sync.close()
        await self.parts.records.close()
        await self.parts.turns.close()
        await self.parts.core.current.model.close()
        log.info("gateway.stopped")
        if self.parts.upkeep.health.lost:
            raise OwnerMustAct(LOST)


def spawn(group: asyncio.TaskGroup, loops: Loops) -> list[asyncio.Task[None]]:
    """Run each loop in the group; one that fails starts again."""
    return [group.create_task(keep_running(name, work), name=name) for name, work in loops.items()]
