"""Starts and stops the process: closes in the reverse order of opening.

During a database outage it retries its steps, and answers requests meanwhile.
"""

import asyncio
import faulthandler
import hmac
import json
import os
import re
import resource
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from gateway import tools
from gateway.app.assembly import assemble, assemble_way_in, open_core, open_secrets
from gateway.app.gateway import Gateway
from gateway.app.local import listen_as_configured, local_token, reserve_other_loopback, url
from gateway.app.storage.database import has_database, postgres
from gateway.app.storage.restore import check_restore_finished
from gateway.app.storage.upgrade import join_upgraded
from gateway.background.cpu.executor import Cpu
from gateway.background.upkeep.housekeeping import POLL_DELETED_SECONDS, Restorer
from gateway.background.upkeep.timers import Periodic, keep_running
from gateway.background.worker import Workplace
from gateway.config.channels import enabled_channels
from gateway.config.data.files import disk_full
from gateway.config.data.instance import (
    InstanceLock,
    StartHistory,
    erasure_reminder,
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
from gateway.domain.errors import OwnerMustAct, TryAgainLater, leaves
from gateway.domain.ids import InstanceId
from gateway.domain.time import Clock
from gateway.flow.channels.supervisor import preload
from gateway.flow.people import People, meet
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.secrets.vault import import_key_files
from gateway.logs import SecretMask, logging_to
from gateway.store.connection.pool import Database
from gateway.workspace.files.tree import Workspace
from gateway.workspace.template import fill_new_workspace, renew_files

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 5.0
LOG_SECONDS = 60.0
ANSWER_AFTER_SECONDS = 2.0
"""Seconds until a start answers requests; most starts are faster."""
REQUEST_SECONDS = 5.0
_BEARER = re.compile(r"^authorization: *bearer +(\S+)", re.IGNORECASE | re.MULTILINE)

Result = TypeVar("Result")

log = structlog.get_logger("gateway")


@dataclass(slots=True)
class StartRetry:
    """Retries until a step works; `reason` says in one line why the start waits."""

    listening: socket.socket | None
    data: Path
    local_token: str = field(repr=False)
    clock: Clock
    reason: str = field(default="it starts", init=False)
    _log_at: float = field(default=0.0, init=False)

    async def retry(self, stack: AsyncExitStack, attempt: Callable[[AsyncExitStack], Awaitable[Result]]) -> Result:
        """The result of the first attempt that meets no outage.

        `stack` closes what the successful attempt opened; what a failed attempt opened is closed before the next one.
        """
        pause = MIN_PAUSE_SECONDS
        while True:
            async with AsyncExitStack() as opened:
                try:
                    made = await attempt(opened)
                except* (TryAgainLater, OSError) as outage:
                    if not all(isinstance(each, TryAgainLater) or disk_full(each) for each in leaves(outage)):
                        raise
                    self._report(outage)
                else:
                    stack.push_async_exit(opened.pop_all())
                    return made
            await self.clock.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def run_until(self, stop: asyncio.Event, work: Awaitable[Result]) -> Result | None:
        """The result of `work`, or None if `stop` is set first; requests are answered meanwhile."""
        tasks = [asyncio.ensure_future(work), asyncio.create_task(stop.wait()), asyncio.create_task(self._answer_all())]
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            return await tasks[0] if tasks[0].done() else None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _report(self, outage: BaseExceptionGroup) -> None:
        first = next(leaves(outage))
        self.reason = str(first)
        if disk_full(first):
            self.reason = f"the disk is full: {self.reason}; make room in {self.data} (64 MB, unless it says more)"
        if self.clock.monotonic() >= self._log_at:
            self._log_at = self.clock.monotonic() + LOG_SECONDS
            log.warning("start.waits", error=self.reason)

    async def _answer_all(self) -> None:
        """Answer requests until cancelled, after `ANSWER_AFTER_SECONDS`."""
        if self.listening is None:
            return
        await asyncio.sleep(ANSWER_AFTER_SECONDS)
        server = await asyncio.start_server(self._answer, sock=self.listening.dup(), backlog=512)
        await server.serve_forever()  # cancelling closes it

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._reply(request.decode("latin-1")))
                await writer.drain()
        writer.close()

    def _reply(self, request: str) -> bytes:
        """The 503 reply; only programs on this machine get the reason."""
        bearer = _BEARER.search(request)
        trusted = bearer is not None and hmac.compare_digest(bearer[1].encode(), self.local_token.encode())
        message = f"The gateway waits for its database{f': {self.reason}' if trusted else ''}"
        error = {"message": message, "type": "server_error", "param": None, "code": "waiting"}
        body, kind = json.dumps({"error": error}), "application/json"
        if request.startswith("GET /health "):
            body, kind = "waiting\n", "text/plain"
        head = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close"
        return f"HTTP/1.1 503 Service Unavailable\r\n{head}\r\n\r\n{body}".encode()


def run(environment: Environment) -> int:
    """Run the gateway until SIGTERM or SIGINT; raises `SupaclawError` if it can't start."""
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
        if why := erasure_reminder(environment.data):
            log.warning("erasure.unfinished", problem=why)
        uvloop.run(_serve(environment, config, mask, record_start(environment.data, SystemClock()), hold))
        record_stop(environment.data)
    return 0


async def _serve(
    environment: Environment, config: Config, mask: SecretMask, starts: StartHistory, hold: InstanceLock
) -> None:
    """Start, run, stop. Slow modules are imported in a thread while Postgres starts."""
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


async def _load_secrets(secrets: LiveSecrets) -> None:
    await import_key_files(secrets.vault, secrets.owner)
    await secrets.look()


def stop_signal() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
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
