"""Starting and stopping the process: what is opened first is closed last."""

import asyncio
import faulthandler
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from gateway.app.archive.place import check_finished
from gateway.app.current import Current
from gateway.app.database import postgres
from gateway.app.gateway import TOLD, Gateway
from gateway.app.local import listening, reserved, url
from gateway.app.upgrade import taken_over
from gateway.app.waiting import Waiting
from gateway.app.wiring import Parts
from gateway.config.channels import enabled_channels
from gateway.config.clock import SystemClock
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.config.instance import hold_instance, instance_id, record_address
from gateway.config.load import load
from gateway.config.model import Config
from gateway.config.starts import Starts, record_start, record_stop
from gateway.domain.clock import Clock
from gateway.domain.ids import InstanceId
from gateway.flow.channels.manager import preload
from gateway.flow.people import People, meet
from gateway.llm.client import build_client
from gateway.logs import SecretMask, logging_to
from gateway.store.listener import Listener
from gateway.store.pool import Database
from gateway.workspace.renewal import renew
from gateway.workspace.template import fill_new_workspace
from gateway.workspace.tree import Workspace

Run: TypeAlias = Callable[[socket.socket], Awaitable[None]]
"""A gateway that is prepared, on the socket of its web."""


def run(environment: Environment) -> int:
    """Be the gateway until SIGTERM or SIGINT; raises `SupaclawError` when it cannot start."""
    import uvloop

    faulthandler.enable()
    config = load(environment.config, os.environ)
    failpoints = Failpoints(environment.fail)
    mask = SecretMask()
    with hold_instance(environment.data), logging_to(environment.data / "logs", mask):
        check_finished(environment.data)
        starts = record_start(environment.data, SystemClock())
        uvloop.run(_Start(environment, config, failpoints, mask, starts).serve())
        record_stop(environment.data)
    return 0


@dataclass(frozen=True, slots=True)
class _Start:
    environment: Environment
    config: Config
    failpoints: Failpoints
    mask: SecretMask
    starts: Starts

    async def serve(self) -> None:
        """Start, run, stop; until it runs, an outage of the database is waited for, and a signal to stop obeyed."""
        stop, clock, data = _stop_signal(), SystemClock(), self.environment.data
        async with AsyncExitStack() as stack:
            socket = stack.enter_context(listening(self.config.web.host, self.config.web.port))
            stack.enter_context(reserved(socket))
            record_address(data, url(socket))
            waiting = Waiting(socket, data, clock)
            if run := await waiting.unless(stop, self._started(stack, waiting, stop, clock)):
                await run(socket)

    async def _started(self, stack: AsyncExitStack, waiting: Waiting, stop: asyncio.Event, clock: Clock) -> Run:
        """What is slow to import is imported in a thread while Postgres starts."""
        environment, config = self.environment, self.config
        preloaded = asyncio.create_task(asyncio.to_thread(preload, enabled_channels(config.channels)), name="preload")
        stack.callback(preloaded.cancel)

        async def reach(opened: AsyncExitStack) -> tuple[InstanceId, str]:
            fill_new_workspace(environment.workspace)
            return instance_id(environment.data), await opened.enter_async_context(
                postgres(environment, config, mine=True)
            )

        async def take_over(opened: AsyncExitStack) -> tuple[Database, People]:
            database = await opened.enter_async_context(await Database.connect(dsn))
            await opened.enter_async_context(taken_over(environment, config, database, instance))
            await renew(Workspace(environment.workspace))
            return database, await meet(database, config.owner.name, config.owner.ids)

        instance, dsn = await waiting.until(stack, reach)
        database, people = await waiting.until(stack, take_over)
        current = Current(config, await build_client(config.models, os.environ, clock))
        await preloaded
        parts = Parts(environment, current, database, people, instance, self.failpoints, self.starts, stop, clock)
        gateway = Gateway(parts, self.mask)
        doors = await waiting.until(stack, lambda _: gateway.prepare())
        return partial(gateway.run, doors, Listener(dsn, TOLD, gateway.heard, gateway.listening))


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
