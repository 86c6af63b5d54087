"""The gateway, wired: the only place that builds objects."""

import asyncio
import gc
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from gateway import commands, tools
from gateway.agent.limits import Limits
from gateway.app.condition import Condition
from gateway.app.local import announce, is_secret, local_token, owner_ids, url
from gateway.background.upkeep import kept_up
from gateway.background.worker import Worker
from gateway.config.channels import check_channels
from gateway.config.clock import SystemClock
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.config.load import parse
from gateway.config.model import Config
from gateway.config.starts import Starts
from gateway.config.watch import ConfigWatch
from gateway.domain.channel import WebhookChannel
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import InstanceId, TaskId
from gateway.domain.inbound import Inbound
from gateway.domain.tasks import Lane
from gateway.domain.vitals import Vitals
from gateway.flow.answers import Answers
from gateway.flow.compacting import Compacting
from gateway.flow.dispatch import Dispatch
from gateway.flow.doors import Doors, Opening, openings
from gateway.flow.homes import Homes
from gateway.flow.inbound import InboundFlow
from gateway.flow.journal.journal import Journal
from gateway.flow.live import Live
from gateway.flow.notices import Notices
from gateway.flow.outages import Outages
from gateway.flow.outbound import Outbound
from gateway.flow.people import People
from gateway.flow.turns import Turns
from gateway.llm.client import Description, ModelClient, build_client
from gateway.logs import SecretMask
from gateway.store import journals, steps, tasks
from gateway.store.listener import Listener
from gateway.store.pool import Database

if TYPE_CHECKING:
    from gateway.web.backend import Backend, StatusReport

DRAIN_SECONDS = 10.0
CATCH_UP_SECONDS = 5.0
TASK_READY = "supaclaw_task"
TASK_CANCELLED = "supaclaw_cancel"

log = structlog.get_logger("gateway")


class Gateway:
    """The parts of a running gateway, wired once; a new configuration is taken over in place."""

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
    ) -> None:
        self._environment = environment
        self._config = config
        self._database = database
        self._people = people
        self._instance = instance
        self._model = model
        self._mask = mask
        self._clock = SystemClock()
        self._started_at = self._clock.now()
        self._commands = commands.discover()
        self._live = Live()
        self._outbound = Outbound(database, failpoints)
        self._outages = Outages(database, self._outbound, self._clock)
        self._doors = Doors(self._outbound)
        members = environment.data / "principals"
        self._homes = Homes(database, people, environment.workspace, members, tools.discover())
        self.worker = Worker(database, instance, {"chat": self._turns(failpoints)}, [Lane.CHAT], self._tell_owner)
        self._dispatch = Dispatch(
            database,
            self._commands,
            self._describe,
            self._outbound,
            self.worker.cancel,
            self._live,
            self._clock,
            failpoints,
            vitals=self._vitals,
            limits=self._limits,
        )
        self._notices = Notices(database, people, self._outbound, self._live)
        self._journal = Journal(database, people, environment.workspace, environment.data, self._clock)
        self._live.listen(self._journal.changed)
        self._inbound = InboundFlow(
            database,
            people,
            self._commands.keys(),
            self._dispatch,
            self.worker.wake,
            self._live,
            instance,
            failpoints,
            self._journal,
            self._outages,
            self._notices,
            self._clock,
        )
        self._condition = Condition(
            environment,
            lambda: self._config,
            database,
            instance,
            self._doors,
            self.worker,
            self._notices,
            starts,
            self._clock,
        )
        self._condition.shed.extend([self._inbound.forget, self._homes.forget])

    def _turns(self, failpoints: Failpoints) -> Turns:
        return Turns(
            self._database,
            lambda: self._model,
            self._limits,
            self._homes,
            self._outbound,
            self._live,
            self._clock,
            failpoints,
            self._compacting(failpoints),
            self._outages,
        )

    def _compacting(self, failpoints: Failpoints) -> Compacting:
        return Compacting(
            self._database,
            lambda: self._model.led_by(self._config.models.summary),
            lambda: self._config.compaction.at_tokens,
            journals.close,
            self._live,
            failpoints,
        )

    def _limits(self) -> Limits:
        budgets = self._config.budgets
        return Limits(usd=budgets.run_usd, day_usd=budgets.day_usd, month_usd=budgets.month_usd)

    async def _tell_owner(self, text: str) -> None:
        await self._notices.tell_owner(text)

    def _vitals(self) -> Vitals:
        return self._condition.vitals()

    def _describe(self) -> Description:
        return self._model.describe()

    def heard(self, channel: str, payload: str) -> None:
        """Another process told us something."""
        if channel == TASK_CANCELLED:
            self.worker.cancel([TaskId(UUID(payload))])
        else:
            self.worker.wake()

    async def run(self, listener: Listener, socket: socket.socket, stop: asyncio.Event) -> None:
        """Work until `stop`; then take nothing more in, and let what runs come to its end."""
        async with asyncio.TaskGroup() as group:
            opened = await self._admit(self._config)
            await self._resume()
            await self._doors.apply(opened, self._receive, group)
            running = self._start(group, listener)
            running += await self._after_ready(group, socket)
            await stop.wait()
            log.info("gateway.stopping")
            await self._doors.stop_receiving()
            await self.worker.drain(DRAIN_SECONDS)
            await self._outbound.drain(DRAIN_SECONDS)
            await self._doors.shut()
            await self._catch_up()
            for task in running:
                task.cancel()
        await self._condition.close()
        await self._model.close()
        log.info("gateway.stopped")

    async def _catch_up(self) -> None:
        """What the journal still lacks the next start adds, so this need not take long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self._journal.catch_up()

    async def _resume(self) -> None:
        """Take up what a crash left: runs, what only the journal has of those admitted, commands."""
        async with self._database.connection() as conn:
            released = await tasks.release(conn, self._instance)
        if released:
            log.info("gateway.resumed", runs=released)
        await self._dispatch.resume()
        await self._inbound.restore(await self._journal.unstored())
        await self._journal.checked()

    def _start(self, group: asyncio.TaskGroup, listener: Listener) -> list[asyncio.Task[None]]:
        work = {
            "worker": self.worker.run,
            "outbound": self._outbound.run,
            "commands": self._dispatch.retry,
            "spool": self._inbound.run,
            "outages": self._outages.run,
            "journal": self._journal.run,
            "listener": listener.run,
            **self._condition.watches,
        }
        return [group.create_task(kept_up(name, each), name=name) for name, each in work.items()]

    async def _after_ready(self, group: asyncio.TaskGroup, socket: socket.socket) -> list[asyncio.Task[None]]:
        """What the first poll does not need: the web, the model's SDK, watching the configuration."""
        web = await asyncio.to_thread(import_module, "gateway.web.server")
        backend = self._backend()
        work: dict[str, Callable[[], Awaitable[None]]] = {
            "web": partial(web.serve, backend, socket),
            "config": self._watch(group).run,
            "models": self._warm,
            **self._condition.chores,
        }
        started = [group.create_task(kept_up(name, each), name=name) for name, each in work.items()]
        announce(backend.links.issue(url(socket), self._clock.now()), self._model.describe())
        return started

    async def _warm(self) -> None:
        """Import what the first turn needs; from then on the garbage collector need not look at it again."""
        await self._model.warm()
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
            await self._notices.tell_owner(f"config.json was not taken over. {problem}")

        watch = ConfigWatch(self._environment.config, self._config, parsed, rejected)
        watch.subscribe(changed)
        return watch

    async def _change(self, config: Config, group: asyncio.TaskGroup) -> None:
        """Take over an edited configuration; what runs goes on with the models it started with."""
        if config.models != self._config.models:
            group.create_task(self._retire(self._model), name="retired models")
            self._model = await build_client(config.models, os.environ, self._clock)
        self._config = config
        await self._doors.apply(await self._admitted(config), self._receive, group)

    async def _retire(self, model: ModelClient) -> None:
        """Close what the turns under way still use, once they are over."""
        await self.worker.settle()
        await model.close()

    async def _admitted(self, config: Config) -> Mapping[str, Opening]:
        """The same however long the database is away; who is shut out is shut out at once."""
        while True:
            try:
                return await self._admit(config)
            except TryAgainLater as exc:
                log.warning("config.waits", error=str(exc))
                await self._clock.sleep(1.0)

    async def _admit(self, config: Config) -> Mapping[str, Opening]:
        """Know who may come in; by which doors."""
        menu = [(command.name, command.summary) for command in self._commands.values()]
        opened = openings(config.channels, menu, self._environment.data)
        for part in (config, *(opening.settings for opening in opened.values())):
            self._mask.learn(part)
        for name in filter(is_secret, os.environ):
            self._mask.add(os.environ[name])
        for name, opening in opened.items():
            if opening.access.anyone:
                log.warning("channel.open_to_all", channel=name, hint=f'"*" or "open" lets anyone use {name}')
        self._people.allow({name: opening.access for name, opening in opened.items()})
        await self._people.learn(self._database, config.owner.name, owner_ids(config))
        return opened

    async def _receive(self, batch: Sequence[Inbound]) -> None:
        await self._inbound.accept(batch)

    def _backend(self) -> "Backend":
        from gateway.web.backend import Backend

        return Backend(
            database=self._database,
            inbox=self._inbound,
            answers=Answers(self._database, self._live),
            live=self._live,
            owner=self._people.owner,
            local_token=local_token(self._environment.data),
            webhooks=lambda: {n: c for n, c in self._doors.channels.items() if isinstance(c, WebhookChannel)},
            status=self._status,
            healthy=lambda: self._condition.well,
            clock=self._clock,
            commands={name: command.summary for name, command in self._commands.items()},
            allowed_hosts=frozenset(),
            on_shed=self._condition.shed.append,
        )

    async def _status(self) -> "StatusReport":
        from gateway.web.backend import StatusReport

        now = self._clock.now()
        async with self._database.connection() as conn:
            queue = await tasks.queue(conn)
            today = await steps.spent_since(conn, now.replace(hour=0, minute=0, second=0, microsecond=0))
        return StatusReport(
            version=version("supaclaw"),
            started_at=self._started_at,
            model=self._model.describe().active,
            queue={status.value: count for status, count in queue.items()},
            channels=self._doors.states,
            today=today,
            vitals=self._vitals(),
        )
