"""The gateway, wired: the only place that builds objects."""

import asyncio
import gc
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from uuid import UUID

import structlog

from gateway.app.backend import build_backend
from gateway.app.current import Current
from gateway.app.local import announce, is_secret, owner_ids, url
from gateway.app.wiring import Parts
from gateway.background.upkeep import kept_up
from gateway.background.watch.systemd import notify
from gateway.config.channels import check_channels
from gateway.config.clock import SystemClock
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.config.load import parse
from gateway.config.model import Config
from gateway.config.starts import Starts
from gateway.config.watch import ConfigWatch
from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.domain.ids import InstanceId, TaskId
from gateway.flow.channels.manager import ChannelSpec, channel_specs
from gateway.flow.people import People
from gateway.llm.client import ModelClient, build_client
from gateway.logs import SecretMask
from gateway.store import tasks
from gateway.store.listener import Listener
from gateway.store.pool import Database

DRAIN_SECONDS = 10.0
CATCH_UP_SECONDS = 5.0
LOST = "another gateway took over this database while this one was out of touch; stop one of them"
TASK_READY = "supaclaw_task"
TASK_CANCELLED = "supaclaw_cancel"
PEOPLE_CHANGED = "supaclaw_people"
SCHEDULES_CHANGED = "supaclaw_schedule"
TOLD = (TASK_READY, TASK_CANCELLED, PEOPLE_CHANGED, SCHEDULES_CHANGED)
"""What processes on the same database tell each other of."""

log = structlog.get_logger("gateway")


class Gateway:
    """A running gateway: its start, its work, its orderly stop; a new configuration is taken over in place."""

    def __init__(
        self,
        environment: Environment,
        config: Config,
        database: Database,
        people: People,
        instance: InstanceId,
        model: ModelClient,
        failpoints: Failpoints,
        mask: SecretMask,
        starts: Starts,
        stop: asyncio.Event,
    ) -> None:
        self._environment = environment
        self._database = database
        self._instance = instance
        self._mask = mask
        self._stop = stop
        self._clock = SystemClock()
        self._started_at = self._clock.now()
        self._current = Current(config, model)
        self._parts = Parts(
            environment, self._current, database, people, instance, failpoints, starts, stop, self._clock
        )

    def heard(self, channel: str, payload: str) -> None:
        """Another process told us something."""
        if channel == TASK_CANCELLED:
            self._parts.worker.cancel([TaskId(UUID(payload))])
        elif channel == PEOPLE_CHANGED:
            self._parts.gate.people_changed()
        elif channel == SCHEDULES_CHANGED:
            self._parts.schedules_changed()
        else:
            self._parts.worker.wake()

    async def run(self, listener: Listener, socket: socket.socket) -> None:
        """Work until told to stop, then let what runs end; raises `OwnerMustAct` once another gateway took over."""
        async with asyncio.TaskGroup() as group:
            opened = await self._admit(self._current.config)
            await self._resume()
            await self._parts.channel_manager.apply(opened, self._parts.gate.receive, group)
            running = self._start(group, listener)
            running += await self._after_ready(group, socket)
            await notify(self._environment.notify_socket, "READY=1")
            await self._stop.wait()
            lost = self._parts.condition.health.lost
            log.info("gateway.stopping")
            await self._parts.channel_manager.stop_receiving(sending=not lost)
            await self._parts.worker.drain(0.0 if lost else DRAIN_SECONDS)
            if lost:
                await self._parts.inbound.drain(DRAIN_SECONDS)
            await self._parts.outbound.drain(DRAIN_SECONDS)
            await self._parts.channel_manager.shut()
            await self._catch_up()
            for task in running:
                task.cancel()
        await self._parts.condition.close()
        await self._current.model.close()
        log.info("gateway.stopped")
        if lost:
            raise OwnerMustAct(LOST)

    async def _catch_up(self) -> None:
        """What the journal still lacks the next start adds, so this need not take long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self._parts.journal.catch_up()

    async def _resume(self) -> None:
        """Take up what a crash left: runs, what only the journal has of those admitted, commands."""
        async with self._database.connection() as conn:
            released = await tasks.release(conn, self._instance)
        if released:
            log.info("gateway.resumed", runs=released)
        await self._parts.command_runner.resume()
        await self._parts.inbound.restore(await self._parts.journal.unstored())
        await self._parts.journal.checked()

    def _start(self, group: asyncio.TaskGroup, listener: Listener) -> list[asyncio.Task[None]]:
        work = {
            "worker": self._parts.worker.run,
            "outbound": self._parts.outbound.run,
            "gate": self._parts.gate.run,
            "commands": self._parts.command_runner.retry,
            "spool": self._parts.inbound.run,
            "outages": self._parts.outages.run,
            "follow-up": self._parts.follow_up.run,
            "journal": self._parts.journal.run,
            "listener": listener.run,
            **self._parts.condition.watches,
        }
        return [group.create_task(kept_up(name, each), name=name) for name, each in work.items()]

    async def _after_ready(self, group: asyncio.TaskGroup, socket: socket.socket) -> list[asyncio.Task[None]]:
        """What the first poll does not need: the web, the model's SDK, watching the configuration."""
        web = await asyncio.to_thread(import_module, "gateway.web.server")
        backend = build_backend(self._environment, self._parts, self._current, self._database, self._clock)
        work: dict[str, Callable[[], Awaitable[None]]] = {
            "web": partial(web.serve, backend, socket),
            "config": self._watch(group).run,
            "models": self._warm,
            "jobs": self._parts.job_table.run,
        }
        started = [group.create_task(kept_up(name, each), name=name) for name, each in work.items()]
        announce(
            backend.links.issue(backend.public_url or url(socket), self._clock.now()), self._current.model.describe()
        )
        return started

    async def _warm(self) -> None:
        """Import what the first turn needs; from then on the garbage collector need not look at it again."""
        await self._current.model.warm()
        gc.collect()
        gc.freeze()

    def _watch(self, group: asyncio.TaskGroup) -> ConfigWatch:
        def parsed(text: str) -> Config:
            config = parse(text, os.environ)
            check_channels(config.channels)
            return config

        async def changed(config: Config) -> None:
            await self._change(config, group)

        async def rejected(problem: str) -> None:
            await self._parts.notices.tell_owner(f"config.json was not taken over. {problem}")

        watch = ConfigWatch(self._environment.config, self._current.config, parsed, rejected)
        watch.subscribe(changed)
        return watch

    async def _change(self, config: Config, group: asyncio.TaskGroup) -> None:
        """Take over an edited configuration; what runs goes on with the models it started with."""
        if config.models != self._current.config.models:
            group.create_task(self._retire(self._current.model), name="retired models")
            self._current.model = await build_client(config.models, os.environ, self._clock)
        self._current.config = config
        await self._parts.channel_manager.apply(await self._admitted(config), self._parts.gate.receive, group)
        self._parts.follow_up.look_again()

    async def _retire(self, model: ModelClient) -> None:
        """Close what the turns under way still use, once they are over."""
        await self._parts.worker.settle()
        await model.close()

    async def _admitted(self, config: Config) -> Mapping[str, ChannelSpec]:
        """The same however long the database is away; who is shut out is shut out at once."""
        while True:
            try:
                return await self._admit(config)
            except TryAgainLater as exc:
                log.warning("config.waits", error=str(exc))
                await self._clock.sleep(1.0)

    async def _admit(self, config: Config) -> Mapping[str, ChannelSpec]:
        """Know who may come in; by which doors."""
        menu = [(command.name, command.summary) for command in self._parts.commands.values()]
        opened = channel_specs(config.channels, menu, self._environment.data)
        for part in (config, *(spec.settings for spec in opened.values())):
            self._mask.learn(part)
        for name in filter(is_secret, os.environ):
            self._mask.add(os.environ[name])
        for name, spec in opened.items():
            if spec.access.anyone:
                log.warning("channel.open_to_all", channel=name, hint=f'"*" or "open" lets anyone use {name}')
        self._parts.people.allow({name: spec.access for name, spec in opened.items()})
        await self._parts.people.learn(self._database, config.owner.name, owner_ids(config))
        return opened

    def listening(self) -> None:
        """What was told before that may have been missed."""
        self._parts.worker.wake()
        self._parts.schedules_changed()
        self._parts.gate.people_changed()
