"""The process of a gateway or a worker: notifications, leases, loops, the end; and how it applies config.json."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog

from gateway.app.assembly import Parts
from gateway.app.local import is_secret
from gateway.background.upkeep.ram import trim
from gateway.background.upkeep.timers import Loops, keep_running
from gateway.config.channels import check_channels, check_owner
from gateway.config.data.keys import read_keys
from gateway.config.load import parse
from gateway.config.model import Config
from gateway.config.watch import ConfigWatch
from gateway.domain.channels.channel import Menu
from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.domain.ids import TaskId
from gateway.flow.channels.supervisor import ChannelSpec, channel_specs
from gateway.llm.client import ModelClient
from gateway.logs.errors import logged
from gateway.store.connection.listener import Listener
from gateway.store.delivery.addresses import StoredFacts
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

    @property
    def menu(self) -> Menu:
        """The commands that channels offer, each with its summary; none where another process runs the channels."""
        return ()

    async def open_channels(self, specs: Mapping[str, ChannelSpec], group: asyncio.TaskGroup) -> None:
        """Open these channels and close all others; nothing where another process runs the channels."""

    async def apply_config(self, config: Config) -> Mapping[str, ChannelSpec]:
        """Load who has access and return the channels to open. Raises `TryAgainLater`, `OwnerMustAct`."""
        core, people = self.parts.core, self.parts.core.people
        check_owner(config.owner.ids)
        specs = channel_specs(config.channels, self.menu, core.environment.data, partial(StoredFacts, core.database))
        for part in (config, *(spec.settings for spec in specs.values())):
            core.mask.learn(part)
        for name in filter(is_secret, os.environ):
            core.mask.add(os.environ[name])
        for name, spec in specs.items():
            if spec.access.anyone:
                log.warning("channel.open_to_all", channel=name, hint=f'"*" or "open" lets anyone use {name}')
        people.allow({name: spec.access for name, spec in specs.items()})
        await people.learn(core.database, config.owner.name, config.owner.ids)
        for line in people.unsettled(config.owner.ids, specs):
            log.warning("owner.unsettled", hint=line)
        return specs

    def watch_config(self, group: asyncio.TaskGroup) -> ConfigWatch:
        """The watch that reloads config.json; the channels that it opens run in `group`."""
        core = self.parts.core

        def parsed(text: str) -> Config:
            config = parse(text, os.environ, core.secrets.lookup)
            check_channels(config)
            return config

        async def rejected(problem: str) -> None:
            await self.parts.way_out.notices.tell_owner(f"config.json wasn't applied. {problem}")

        def keys() -> Mapping[str, str]:
            return {**read_keys(core.environment.data), **core.secrets.versions()}

        watch = ConfigWatch(core.environment.config, core.current.config, parsed, rejected, _keys=keys)
        watch.subscribe(lambda config: self._change(config, group))
        return watch

    async def _change(self, config: Config, group: asyncio.TaskGroup) -> None:
        """Apply an edited configuration; running turns keep the models that they started with."""
        core = self.parts.core
        if replaced := await core.current.apply(config):
            group.create_task(self._retire(replaced), name="retired models")
        specs = await self._apply_patiently(config)
        if replaced:
            with suppress(TryAgainLater):
                await core.database.run(lambda conn: tasks.hasten_kind(conn, "transcribe"))
        await self.open_channels(specs, group)
        core.signals.deliveries.set()

    async def _retire(self, model: ModelClient) -> None:
        """Close `model` when the turns that use it have ended. Never raises: an error would end the whole group."""
        with logged(log, "models.not_closed"):
            await self.parts.work.worker.settle()
            await model.close()

    async def _apply_patiently(self, config: Config) -> Mapping[str, ChannelSpec]:
        """`apply_config`, retried while the database is unavailable; revoked access is revoked at once."""
        while True:
            try:
                return await self.apply_config(config)
            except TryAgainLater as exc:
                log.warning("config.waits", error=str(exc))
                await self.parts.core.clock.sleep(1.0)

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
