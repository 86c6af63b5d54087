"""The running gateway: the order in which it starts and stops its parts."""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module

import structlog

from gateway.app.local import announce, url
from gateway.app.parts.way_in import WayIn
from gateway.app.process import DRAIN_SECONDS, Process, spawn
from gateway.background.upkeep.health import notify_systemd
from gateway.background.upkeep.timers import Loops
from gateway.beside import at_most, cancel
from gateway.domain.channels.channel import Menu
from gateway.flow.channels.supervisor import ChannelSpec
from gateway.flow.labels import list_older
from gateway.store.connection.listener import Listener
from gateway.store.files import contents

CATCH_UP_SECONDS = 5.0

log = structlog.get_logger("gateway")


@dataclass(frozen=True, slots=True)
class Gateway(Process):
    """A running gateway: a process as a worker is, with a way in."""

    way_in: WayIn
    local_token: str = field(repr=False)

    @property
    def menu(self) -> Menu:
        """The commands of the way in."""
        return [(command.name, command.summary) for command in self.way_in.commands.values()]

    async def open_channels(self, specs: Mapping[str, ChannelSpec], group: asyncio.TaskGroup) -> None:
        """Open these channels, whose messages pass the gate, and close all others."""
        await self.parts.way_out.channels.apply(specs, self.way_in.gate.receive, group)

    async def prepare(self) -> Mapping[str, ChannelSpec]:
        """Load who has access and resume the work that a crash interrupted; return the channels to open.

        Raises `TryAgainLater`.
        """
        specs = await self.apply_config(self.parts.core.current.config)
        await self.parts.core.workplace.look()
        await self._resume()
        return specs

    async def run(self, specs: Mapping[str, ChannelSpec], listener: Listener, socket: socket.socket) -> None:
        """Work until stopped, then let the runs end; raises `OwnerMustAct` if another gateway has taken over."""
        parts, way_out, worker = self.parts, self.parts.way_out, self.parts.work.worker
        inbound, health = self.way_in.inbound, self.parts.upkeep.health
        self.watch_lease(lambda: inbound.spool.waiting)
        async with asyncio.TaskGroup() as group:
            await self.open_channels(specs, group)
            journal = {"journal": parts.records.journal.run}
            running = spawn(group, {**self.loops(listener), **self.way_in.loops, **way_out.loops, **journal})
            running += await self._after_ready(group, socket)
            await notify_systemd(parts.core.environment.notify_socket, "READY=1")
            await parts.upkeep.health.stop.wait()
            log.info("gateway.stopping")
            await way_out.channels.stop_receiving(sending=not health.lost)
            await worker.drain(0.0 if health.lost else DRAIN_SECONDS)
            if health.lost:
                await inbound.spool.drain(DRAIN_SECONDS)
            await way_out.outbound.drain(DRAIN_SECONDS)
            await way_out.channels.shut()
            await self._catch_up()
            await cancel(*running)
        await self.close()

    async def _resume(self) -> None:
        """Resume interrupted commands, and store the messages of admitted people that only the journal has."""
        journal, inbound = self.parts.records.journal, self.way_in.inbound
        await self.way_in.command_runner.resume()
        await inbound.restore(await journal.unstored())
        journal.check.begun(inbound.restore)

    async def _catch_up(self) -> None:
        """Write missing messages to the journal; on a timeout, the next start continues."""
        async with at_most(CATCH_UP_SECONDS):
            await self.parts.records.journal.catch_up()

    async def _after_ready(self, group: asyncio.TaskGroup, socket: socket.socket) -> list[asyncio.Task[None]]:
        """Start the parts that the first poll does not need: the web, the model's SDK, the watch on config.json."""
        core = self.parts.core
        web = await asyncio.to_thread(import_module, "gateway.web.server")
        await asyncio.to_thread(import_module, "gateway.app.backend")
        from gateway.app.backend import build_backend, export_metrics

        watch = self.watch_config(group)
        backend = build_backend(self.parts, self.way_in, self.local_token, watch)
        loops: Loops = {
            "web": partial(web.serve, backend, socket),
            "config": watch.run,
            "models": self.warm,
            "older files": self._list_older,
            "jobs": self.parts.upkeep.job_table.run,
            **export_metrics(backend),
        }
        started = spawn(group, loops)
        announce(
            core.current.config.web.public_url or url(socket),
            core.environment.sign_in,
            lambda: backend.access.sign_in_link(url(socket)),
            core.current.model.describe(),
        )
        return started

    async def _list_older(self) -> None:
        """List files that are older than the labels; the first message does not need them."""
        core, environments = self.parts.core, self.parts.turns.environments
        await core.database.run(lambda tx: contents.commands_interrupted(tx, core.instance))
        await environments.own.locks.files()
        await environments.drop_todo_lists()
        await list_older(core.database, self.parts.records.workspaces.root_of, core.clock)
        await environments.look_at_files()
