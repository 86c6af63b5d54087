"""Starts and stops the process: closes in the reverse order of opening."""

import asyncio
import faulthandler
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial

import structlog

from gateway import tools
from gateway.app.assembly import assemble, assemble_way_in, open_core, open_secrets
from gateway.app.gateway import Gateway
from gateway.app.installation import program_of
from gateway.app.local import listen_as_configured, local_token, reserve_other_loopback, url
from gateway.app.storage.database import has_database, postgres
from gateway.app.storage.restore import check_restore_finished
from gateway.app.storage.upgrade import join_upgraded
from gateway.app.waiting import StartRetry
from gateway.background.cpu.executor import Cpu
from gateway.background.upkeep.health import Stop
from gateway.background.upkeep.housekeeping import POLL_DELETED_SECONDS, Restorer
from gateway.background.upkeep.timers import Periodic, keep_running
from gateway.background.worker import Workplace
from gateway.config.channels import enabled_channels
from gateway.config.data.erasures import MEMBER, erasure_reminder, read_request
from gateway.config.data.instance import (
    InstanceLock,
    StartHistory,
    hold_instance,
    instance_id,
    record_start,
    record_stop,
)
from gateway.config.environment import Environment, remember_place
from gateway.config.failpoints import Failpoints
from gateway.config.load import load, load_early
from gateway.config.machine import SystemClock
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import InstanceId
from gateway.flow.channels.supervisor import preload
from gateway.flow.people import People, meet
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.secrets.vault import import_key_files
from gateway.logs import SecretMask, logging_to
from gateway.store.connection.pool import Database
from gateway.workspace.files.tree import Workspace
from gateway.workspace.template import fill_new_workspace, renew_files

log = structlog.get_logger("gateway")


def run(environment: Environment) -> int:
    """Run the gateway until SIGTERM or SIGINT; raises `SupaclawError` if it can't start.

    A restart replaces the process by one with the same id, so that nothing that it held in memory remains.
    """
    import uvloop

    faulthandler.enable()
    allow_descriptors()
    config = load_early(environment, os.environ)
    if not has_database(environment, config):  # without a database there are no secrets
        config = load(environment.config, os.environ)
    Failpoints(environment.fail)  # raises for an unknown failpoint
    mask = SecretMask()
    with hold_instance(environment.data) as hold, logging_to(environment.data / "logs", mask):
        check_restore_finished(environment.data)
        remember_place(os.environ, environment.place)
        with suppress(OSError):  # so that a file that appears there later is noticed at once
            environment.config.parent.mkdir(parents=True, exist_ok=True)
        starts = record_start(environment.data, SystemClock())
        restarts = uvloop.run(_serve(environment, config, mask, starts, hold))
        record_stop(environment.data)
    if restarts:
        os.execv(sys.executable, (*program_of(), "up"))  # noqa: S606
    return 0


async def _serve(
    environment: Environment, config: Config, mask: SecretMask, starts: StartHistory, hold: InstanceLock
) -> bool:
    """Start, run, stop; returns whether to start again. Slow modules are imported in a thread while Postgres starts."""
    stop, clock = stop_signal(), SystemClock()
    async with AsyncExitStack() as stack:
        socket = stack.enter_context(listen_as_configured(config.web, environment.first_code))
        stack.enter_context(reserve_other_loopback(socket))
        hold.record(url(socket))
        preloaded = asyncio.create_task(asyncio.to_thread(preload, enabled_channels(config.channels)), name="preload")
        stack.callback(preloaded.cancel)
        token = local_token(environment.data)
        waiting = StartRetry(socket, environment.data, token, clock)

        async def reach(opened: AsyncExitStack) -> tuple[InstanceId, str]:
            fill_new_workspace(environment.workspace)
            instance = instance_id(environment.data)
            return instance, await opened.enter_async_context(postgres(environment, config, mine=True))

        async def take_over(opened: AsyncExitStack, instance: InstanceId, dsn: str) -> tuple[Database, People]:
            database = await opened.enter_async_context(await Database.connect(dsn))
            await opened.enter_async_context(join_upgraded(environment, config, database, instance))
            await renew_files(Workspace(environment.workspace))
            return database, await meet(database, config.owner.name, config.owner.ids)

        async def start() -> Callable[[], Awaitable[None]]:
            if read_request(environment.data).memory or read_request(environment.data, MEMBER).member:
                await waiting.retry(stack, lambda _: asyncio.to_thread(_erase, environment, config))
            if why := erasure_reminder(environment.data):
                log.warning("erasure.unfinished", problem=why)
            instance, dsn = await waiting.retry(stack, reach)
            database, people = await waiting.retry(stack, partial(take_over, instance=instance, dsn=dsn))
            secrets = open_secrets(environment, database, people, mask, supabase=config.database.in_supabase_vault)
            await waiting.retry(stack, lambda _: _load_secrets(secrets))
            workplace = Workplace(database, "gateway", instance)
            core = await open_core(environment, workplace, people, instance, secrets, mask)
            await preloaded
            parts = assemble(core, starts=starts, stop=stop, families=tools.discover(), cpu=Cpu())
            tell_owner = parts.way_out.notices.tell_owner
            restorer = Periodic("restorer", POLL_DELETED_SECONDS, Restorer(environment, hold, tell_owner).look)
            stack.callback(asyncio.create_task(keep_running(restorer.name, restorer.run), name=restorer.name).cancel)
            gateway = Gateway(parts, assemble_way_in(parts), token)
            await waiting.retry(stack, lambda _: gateway.requeue_interrupted())
            specs = await waiting.retry(stack, lambda _: gateway.prepare())
            return partial(gateway.run, specs, gateway.listener(dsn), socket)

        if run := await waiting.run_until(stop, start()):
            await run()
    return stop.restarts


def _erase(environment: Environment, config: Config) -> None:
    """Blocks, on an event loop of its own: requests are answered meanwhile, and a stop waits for the end."""
    from gateway.app.storage.erase import erase_as_requested  # most starts don't need it

    asyncio.run(erase_as_requested(environment, config))


async def _load_secrets(secrets: LiveSecrets) -> None:
    await import_key_files(secrets.vault, secrets.owner)
    await secrets.look()


def stop_signal() -> Stop:
    """The event that SIGTERM and SIGINT set."""
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.exit)
    return stop


MIN_DESCRIPTORS = 128
DESCRIPTORS = 4096


def allow_descriptors() -> None:
    """Raise the soft limit on open files as far as the system allows; raises `OwnerMustAct` if it stays too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < DESCRIPTORS:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, DESCRIPTORS), hard))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed < MIN_DESCRIPTORS:
        raise OwnerMustAct(
            f"at most {allowed} files may be open at once, and the gateway needs {MIN_DESCRIPTORS}: "
            "run `ulimit -n 1024` first, or set LimitNOFILE=1024 for its service"
        )
