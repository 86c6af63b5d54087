"""The gateway while it runs: what it starts, what it takes over from config.json, how it stops."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from uuid import UUID

import structlog

from gateway.app.backend import build_backend
from gateway.app.local import announce, is_secret, url
from gateway.app.wiring import SECRETS, Parts
from gateway.background.upkeep.health import notify_systemd
from gateway.background.upkeep.ram import trim
from gateway.background.upkeep.timers import Periodic, keep_running
from gateway.background.worker import POLL_WORKPLACE_SECONDS as LOOK_FOR_WORKSPACE
from gateway.config.channels import check_channels, check_owner
from gateway.config.data.keys import read_keys
from gateway.config.load import parse
from gateway.config.model import Config
from gateway.config.watch import ConfigWatch
from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.domain.ids import TaskId
from gateway.flow.channels.supervisor import ChannelSpec, channel_specs
from gateway.flow.labels import list_older
from gateway.llm.client import ModelClient
from gateway.store.connection.listener import Listener
from gateway.store.delivery.addresses import StoredFacts
from gateway.store.files import contents
from gateway.store.work import tasks

DRAIN_SECONDS = 10.0
CATCH_UP_SECONDS = 5.0
LOST = "another gateway took over this database, or a channel, while this one was unresponsive; start it again"
TASK_READY = "supaclaw_task"
TASK_CANCELLED = "supaclaw_cancel"
PEOPLE_CHANGED = "supaclaw_people"
SCHEDULES_CHANGED = "supaclaw_schedule"
SECRETS_CHANGED = "supaclaw_secrets"
CHANNELS = (TASK_READY, TASK_CANCELLED, PEOPLE_CHANGED, SCHEDULES_CHANGED, SECRETS_CHANGED)
"""What processes on the same database tell each other of."""

log = structlog.get_logger("gateway")


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway: its start, its work, its orderly stop; a new configuration is taken over in place."""

    _parts: Parts
    _local_token: str = field(repr=False)

    def heard(self, channel: str, payload: str) -> None:
        """Another process told us something."""
        if self._parts.traces.heard(channel):
            return
        if channel == TASK_CANCELLED:
            self._parts.worker.cancel([TaskId(UUID(payload))])
        elif channel == PEOPLE_CHANGED:
            self._parts.gate.people_changed()
        elif channel == SCHEDULES_CHANGED:
            self._parts.schedules_changed()
        elif channel == SECRETS_CHANGED:
            self._parts.job_table.wake(SECRETS)
        else:
            self._parts.worker.wake()

    async def put_back(self) -> None:
        """Queue again what a crash interrupted; once a start, for it counts deaths. Raises `TryAgainLater`."""
        put_back = tasks.died if self._parts.starts.in_a_row else tasks.release
        released = await self._parts.database.run(lambda tx: put_back(tx, self._parts.instance))
        if released:
            log.info("gateway.resumed", runs=released)

    async def prepare(self) -> Mapping[str, ChannelSpec]:
        """Know who may come in, take up what a crash left; returns the channels to open. Raises `TryAgainLater`."""
        opened = await self._admit(self._parts.current.config)
        await self._parts.workplace.look()
        if self._parts.workplace.kind == "gateway":
            await self._resume()
        return opened

    async def run(self, opened: Mapping[str, ChannelSpec], listener: Listener, socket: socket.socket) -> None:
        """Work until told to stop, then let what runs end; raises `OwnerMustAct` once another gateway took over."""
        self._stay_awake()
        async with asyncio.TaskGroup() as group:
            await self._parts.channel_manager.apply(opened, self._parts.gate.receive, group)
            running = self._start(group, listener)
            running += await self._after_ready(group, socket)
            await notify_systemd(self._parts.environment.notify_socket, "READY=1")
            await self._parts.stop.wait()
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
        await self._close()

    async def work(self, listener: Listener) -> None:
        """Run tasks until told to stop, without channels and web; raises `OwnerMustAct` once it was taken for dead."""
        self._stay_awake()
        async with asyncio.TaskGroup() as group:
            work = {"config": self._watch(group).run, "models": self._warm, "jobs": self._parts.job_table.run}
            running = self._spawn(group, {**self._tasks(listener), **work})
            await notify_systemd(self._parts.environment.notify_socket, "READY=1")
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await self._parts.stop.wait()
            log.info("gateway.stopping")
            await self._parts.worker.drain(0.0 if self._parts.condition.health.lost else DRAIN_SECONDS)
            for task in running:
                task.cancel()
        await self._close()

    async def _close(self) -> None:
        """Let go of what runs beside this process."""
        self._parts.file_sync.close()
        await self._parts.mcp_connections.close()
        await self._parts.embedders.close()
        await self._parts.cpu.close()
        await self._parts.shells.close()
        if processes := self._parts.environments.processes:
            await processes.close()
        await self._parts.jail.close()
        await self._parts.current.model.close()
        log.info("gateway.stopped")
        if self._parts.condition.health.lost:
            raise OwnerMustAct(LOST)

    def _stay_awake(self) -> None:
        """Once another gateway has taken over, this process does nothing more, but for what only it can store."""

        def leave() -> None:
            if not self._parts.inbound.waiting:
                sys.stderr.write(f"supaclaw: {LOST}\n")
                os._exit(1)

        health = self._parts.condition.health
        health.leave = leave
        self._parts.database.before = health.awake
        signal.signal(signal.SIGCONT, lambda *_: health.awake())

    async def _catch_up(self) -> None:
        """What the journal still lacks the next start adds, so this need not take long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self._parts.journal.catch_up()

    async def _resume(self) -> None:
        """Take up what a crash left: commands, and what only the journal has of those admitted."""
        await self._parts.command_runner.resume()
        await self._parts.inbound.restore(await self._parts.journal.unstored())
        self._parts.journal.check.begun(self._parts.inbound.restore)

    def _start(self, group: asyncio.TaskGroup, listener: Listener) -> list[asyncio.Task[None]]:
        work = {
            **self._tasks(listener),
            "outbound": self._parts.outbound.run,
            "gate": self._parts.gate.run,
            "commands": self._parts.command_runner.retry,
            "spool": self._parts.inbound.run,
            "outages": self._parts.outages.run,
            "follow-up": self._parts.follow_up.run,
            "journal": self._parts.journal.run,
        }
        return self._spawn(group, work)

    def _tasks(self, listener: Listener) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """What every instance does, with a web or without."""
        workplace = Periodic("workspace", LOOK_FOR_WORKSPACE, self._parts.workplace.look)
        return {
            "worker": self._parts.worker.run,
            "listener": listener.run,
            workplace.name: workplace.run,
            **self._parts.condition.watches,
        }

    def _spawn(
        self, group: asyncio.TaskGroup, work: Mapping[str, Callable[[], Awaitable[None]]]
    ) -> list[asyncio.Task[None]]:
        return [group.create_task(keep_running(name, each), name=name) for name, each in work.items()]

    async def _after_ready(self, group: asyncio.TaskGroup, socket: socket.socket) -> list[asyncio.Task[None]]:
        """What the first poll does not need: the web, the model's SDK, watching the configuration."""
        web = await asyncio.to_thread(import_module, "gateway.web.server")
        watch = self._watch(group)
        backend = build_backend(self._parts, self._local_token, watch)
        work: dict[str, Callable[[], Awaitable[None]]] = {
            "web": partial(web.serve, backend, socket),
            "config": watch.run,
            "models": self._warm,
            "older files": self._list_older,
            "jobs": self._parts.job_table.run,
        }
        started = self._spawn(group, work)
        announce(
            self._parts.current.config.web.public_url or url(socket),
            self._parts.environment.sign_in,
            lambda: backend.sign_in_link(url(socket)),
            self._parts.current.model.describe(),
        )
        return started

    async def _list_older(self) -> None:
        """And what else is to be known of the files, but not before the first message."""
        parts = self._parts
        await parts.database.run(lambda tx: contents.commands_interrupted(tx, parts.instance))
        await parts.environments.of(parts.people.owner.id).locks.files()
        await parts.environments.drop_plans()
        await list_older(parts.database, lambda whose: parts.environments.of(whose).workspace.root, parts.clock)
        await parts.environments.look_at_files()

    async def _warm(self) -> None:
        """Import what the first turn needs; from then on the garbage collector need not look at it again."""
        await self._parts.current.model.warm()
        gc.collect()
        gc.freeze()
        await asyncio.to_thread(trim)

    def _watch(self, group: asyncio.TaskGroup) -> ConfigWatch:
        def parsed(text: str) -> Config:
            config = parse(text, os.environ, self._parts.secrets.lookup)
            check_channels(config)
            return config

        async def rejected(problem: str) -> None:
            await self._parts.notices.tell_owner(f"config.json wasn't applied. {problem}")

        environment = self._parts.environment

        def keys() -> Mapping[str, str]:
            return {**read_keys(environment.data), **self._parts.secrets.versions()}

        watch = ConfigWatch(environment.config, self._parts.current.config, parsed, rejected, _keys=keys)
        watch.subscribe(lambda config: self._change(config, group))
        return watch

    async def _change(self, config: Config, group: asyncio.TaskGroup) -> None:
        """Take over an edited configuration; what runs goes on with the models it started with."""
        if replaced := await self._parts.current.apply(config, self._parts.clock):
            group.create_task(self._retire(replaced), name="retired models")
        opened = await self._admitted(config)
        if self._parts.workplace.kind == "gateway":
            await self._parts.channel_manager.apply(opened, self._parts.gate.receive, group)
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
                await self._parts.clock.sleep(1.0)

    async def _admit(self, config: Config) -> Mapping[str, ChannelSpec]:
        """Know who may come in; by which doors."""
        menu = [(command.name, command.summary) for command in self._parts.commands.values()]
        check_owner(config.owner.ids)
        opened = channel_specs(
            config.channels, menu, self._parts.environment.data, partial(StoredFacts, self._parts.database)
        )
        for part in (config, *(spec.settings for spec in opened.values())):
            self._parts.mask.learn(part)
        for name in filter(is_secret, os.environ):
            self._parts.mask.add(os.environ[name])
        for name, spec in opened.items():
            if spec.access.anyone:
                log.warning("channel.open_to_all", channel=name, hint=f'"*" or "open" lets anyone use {name}')
        self._parts.people.allow({name: spec.access for name, spec in opened.items()})
        await self._parts.people.learn(self._parts.database, config.owner.name, config.owner.ids)
        for line in self._parts.people.unsettled(config.owner.ids, opened):
            log.warning("owner.unsettled", hint=line)
        return opened

    def listening(self) -> None:
        """What was told before that may have been missed."""
        self._parts.worker.wake()
        self._parts.schedules_changed()
        self._parts.gate.people_changed()
        self._parts.job_table.wake(SECRETS)
