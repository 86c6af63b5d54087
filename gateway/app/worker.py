"""A worker: the same program without channels and web, on a gateway's database, beside it or elsewhere."""

import asyncio
import faulthandler
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import structlog

from gateway import tools
from gateway.app.assembly import assemble, open_core, open_secrets
from gateway.app.process import DRAIN_SECONDS, Process, spawn
from gateway.app.start import allow_descriptors, stop_signal
from gateway.app.waiting import StartRetry
from gateway.background.cpu.executor import Cpu
from gateway.background.upkeep.health import joined, notify_systemd
from gateway.background.upkeep.timers import Loops
from gateway.background.worker import Workplace
from gateway.config.data.instance import StartHistory, hold_instance, instance_id, known_instance_id
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.config.machine import SystemClock
from gateway.config.model import DatabaseSettings
from gateway.domain.errors import OwnerMustAct, TryAgainLater, required
from gateway.flow.people import People
from gateway.logs import SecretMask, logging_to
from gateway.store.connection.listener import Listener
from gateway.store.connection.pool import Database
from gateway.store.migrate import check_schema
from gateway.store.people import principals

log = structlog.get_logger("gateway")

MAX_WORKERS = 100
"""Workers on one data folder."""
NO_SHARED_DATABASE = (
    "a worker needs a database that several processes can reach; set database.url or SUPACLAW_DATABASE_URL to that of "
    "the gateway, whose embedded server is for itself alone"
)
NO_GATEWAY = "no gateway has been started on this database yet; start `supaclaw up`"


def work(environment: Environment) -> int:
    """Run a worker until SIGTERM or SIGINT; raises `SupaclawError` if it can't start."""
    import uvloop

    faulthandler.enable()
    allow_descriptors()
    settings = load_early(environment, os.environ).database
    if settings.url is None:
        raise OwnerMustAct(NO_SHARED_DATABASE)
    mask = SecretMask()
    with _own_folder(environment) as own, logging_to(own.state / "logs", mask):
        uvloop.run(_serve(own, settings, settings.url.get_secret_value(), mask))
    return 0


@contextmanager
def _own_folder(environment: Environment) -> Iterator[Environment]:
    """Take the first numbered folder that no other worker holds; several workers may share a gateway's data folder."""
    for number in range(1, MAX_WORKERS + 1):
        own = environment.data / "workers" / str(number)
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(hold_instance(own))
            except OwnerMustAct:
                continue
            yield replace(environment, own=own)
            return
    raise OwnerMustAct(f"{MAX_WORKERS} workers share {environment.data}; give the next one another SUPACLAW_DATA")


async def _serve(environment: Environment, settings: DatabaseSettings, dsn: str, mask: SecretMask) -> None:
    """Start, run, stop. Waits for the database, a gateway's first start and the end of an upgrade."""
    stop, clock, instance = stop_signal(), SystemClock(), instance_id(environment.state)
    async with AsyncExitStack() as stack:
        waiting = StartRetry(None, environment.state, "", clock)

        async def join(opened: AsyncExitStack) -> tuple[Database, People]:
            database = await opened.enter_async_context(await Database.connect(dsn))
            people = await _owner_of(database)
            await opened.enter_async_context(joined(database, instance, "worker"))
            return database, people

        async def start() -> Callable[[], Awaitable[None]]:
            database, people = await waiting.retry(stack, join)
            secrets = open_secrets(environment, database, people, mask, supabase=settings.in_supabase_vault)
            await waiting.retry(stack, lambda _: secrets.look())
            workplace = Workplace(database, "worker", known_instance_id(environment.data) or instance)
            core = await open_core(environment, workplace, people, instance, secrets, mask)
            parts = assemble(core, starts=StartHistory(), stop=stop, families=tools.discover(), cpu=Cpu())
            process = Process(parts)
            await waiting.retry(stack, lambda _: process.requeue_interrupted())
            await waiting.retry(stack, lambda _: process.apply_config(core.current.config))
            await core.workplace.look()
            return partial(_run, process, process.listener(dsn), stop)

        if run := await waiting.run_until(stop, start()):
            await run()


async def _run(process: Process, listener: Listener, stop: asyncio.Event) -> None:
    """Run tasks until stopped; raises `OwnerMustAct` if other instances took this worker for dead."""
    upkeep, worker = process.parts.upkeep, process.parts.work.worker
    process.watch_lease(lambda: False)
    async with asyncio.TaskGroup() as group:
        more: Loops = {"config": process.watch_config(group).run, "models": process.warm, "jobs": upkeep.job_table.run}
        running = spawn(group, {**process.loops(listener), **more})
        await notify_systemd(process.parts.core.environment.notify_socket, "READY=1")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await stop.wait()
        log.info("gateway.stopping")
        await worker.drain(0.0 if upkeep.health.lost else DRAIN_SECONDS)
        for task in running:
            task.cancel()
    await process.close()


async def _owner_of(database: Database) -> People:
    """The people; raises `TryAgainLater` until a gateway has created this program's schema and the owner."""
    try:
        await check_schema(database)
    except OwnerMustAct as exc:
        raise TryAgainLater(str(exc)) from exc
    owner = required(await database.read(principals.owner), TryAgainLater(NO_GATEWAY))
    return People(owner)
