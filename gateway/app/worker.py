"""A worker: the same program without channels and web, on the database of a gateway elsewhere or beside it."""

import faulthandler
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from gateway.app.gateway import CHANNELS, Gateway
from gateway.app.live_config import LiveConfig
from gateway.app.start import allow_descriptors, stop_signal
from gateway.app.waiting import Waiting
from gateway.app.wiring import Parts
from gateway.background.upkeep.health import joined
from gateway.background.worker import Workplace
from gateway.config.data.instance import StartHistory, hold_instance, instance_id, known_instance_id
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.config.load import load_early
from gateway.config.machine import SystemClock
from gateway.config.model import DatabaseSettings
from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.flow.people import People
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.secrets.vault import Vault
from gateway.logs import SecretMask, logging_to
from gateway.store.connection.listener import Listener
from gateway.store.connection.pool import Database
from gateway.store.migrate import check_schema
from gateway.store.people import principals

MAX_WORKERS = 100
"""On one data folder."""
NO_SHARED_DATABASE = (
    "a worker needs a database that several processes can reach; set database.url or SUPACLAW_DATABASE_URL to that of "
    "the gateway, whose embedded server is for itself alone"
)
NO_GATEWAY = "no gateway has been started on this database yet; start `supaclaw up`"


def work(environment: Environment) -> int:
    """Be a worker until SIGTERM or SIGINT; raises `SupaclawError` when it cannot start."""
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
    """The first that no other worker has; several may share the data folder of a gateway."""
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
    """Start, run, stop. It waits for its database, for a gateway's first start and for the end of an upgrade."""
    stop, clock, instance = stop_signal(), SystemClock(), instance_id(environment.state)
    async with AsyncExitStack() as stack:
        waiting = Waiting(None, environment.state, "", clock)

        async def join(opened: AsyncExitStack) -> tuple[Database, People]:
            database = await opened.enter_async_context(await Database.connect(dsn))
            people = await _owner_of(database)
            await opened.enter_async_context(joined(database, instance, "worker"))
            return database, people

        async def start() -> Callable[[], Awaitable[None]]:
            database, people = await waiting.retry(stack, join)
            vault = Vault(database, environment.data, os.environ, supabase=settings.in_supabase_vault)
            secrets = LiveSecrets(vault, people.owner.id, os.environ, mask.stored)
            await waiting.retry(stack, lambda _: secrets.look())
            current = await LiveConfig.loaded(environment, secrets, clock)
            home = known_instance_id(environment.data) or instance
            workplace = Workplace(database, "worker", home)
            failpoints = Failpoints(environment.fail)
            parts = Parts(
                environment,
                current,
                database,
                people,
                instance,
                failpoints,
                StartHistory(),
                stop,
                clock,
                secrets,
                mask,
                workplace,
            )
            gateway = Gateway(parts, "")
            await waiting.retry(stack, lambda _: gateway.put_back())
            await waiting.retry(stack, lambda _: gateway.prepare())
            return partial(gateway.work, Listener(dsn, CHANNELS, gateway.heard, gateway.listening))

        if run := await waiting.run_until(stop, start()):
            await run()


async def _owner_of(database: Database) -> People:
    """Raises `TryAgainLater` until a gateway has set up this program's schema and met its owner."""
    try:
        await check_schema(database)
    except OwnerMustAct as exc:
        raise TryAgainLater(str(exc)) from exc
    async with database.connection() as conn:
        if (owner := await principals.owner(conn)) is None:
            raise TryAgainLater(NO_GATEWAY)
    return People(owner)
