"""What every test may ask for: one real Postgres a session, and in it a fresh database a test."""

import asyncio
import fcntl
import gc
import os
import shutil
import ssl
import tempfile
import warnings
from collections.abc import AsyncIterator, Collection, Coroutine, Generator, Hashable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

import asyncpg
import coverage
import pytest
import structlog
from coverage.exceptions import CoverageWarning
from fastapi.routing import _IncludedRouter
from hypothesis import HealthCheck, settings
from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from structlog.dev import ConsoleRenderer, plain_traceback

from gateway.store.connection.pool import Database
from gateway.store.embedded.cluster import opened
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.migrate import migrate
from tests.routes import METHOD, RoutesBuiltOnce

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

Result = TypeVar("Result")

TESTS = Path(__file__).parent
HOMES = "supaclaw-pytest-"
MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory: a database is made and dropped four times as fast there."""
ENOUGH = 2 * 2**30
SETTINGS = ("fsync = off", "full_page_writes = off", "autovacuum = off", "deadlock_timeout = '20ms'")
"""Nothing is worth keeping, and no database lives long enough to be tidied up."""


OUTSIDE = {"browser", "chaos", "contract", "journeys", "security", "upgrades"}
"""Folders of tests of whole gateways, from outside; a tracer would shift kill points; other tests cover as much."""


FULL = os.environ.get("SUPACLAW_CHAOS") == "full"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "chaos: takes long; only with SUPACLAW_CHAOS=full")
    about = "a browser, or another kill, size or place of what quicker tests show; for .ci/run"
    config.addinivalue_line("markers", f"thorough: {about}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect long tests in a quick run instead of skipping them: nothing is missing then."""
    for item in items:
        if item.path.is_relative_to(TESTS / "chaos"):
            item.add_marker("thorough")
    if FULL:
        return
    long = [item for item in items if item.get_closest_marker("chaos")]
    items[:] = [item for item in items if item not in long]
    config.hook.pytest_deselected(items=long)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while modules are read, and never look again at the million objects that this leaves."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def one_of_a_class(steps: Iterable[Hashable], quick: Collection[Hashable]) -> list[Any]:
    """A kill at each step in `make chaos`, and in `make test` at those of `quick`: one of each class of step.

    A tuple is one value for each of several arguments.
    """
    steps = list(steps)
    assert set(quick) <= set(steps), "a quick one is one of all"
    return [
        pytest.param(*(step if isinstance(step, tuple) else (step,)), marks=() if step in quick else pytest.mark.chaos)
        for step in steps
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Stop the tracer of `make test COVERAGE=1` while a test of a whole gateway runs."""
    tracer = coverage.Coverage.current()
    if tracer is None or item.path.relative_to(TESTS).parts[0] not in OUTSIDE:
        return (yield)
    tracer.stop()
    try:
        return (yield)
    finally:
        with warnings.catch_warnings():
            # Where no test was traced before, it warns of our own modules, which are imported by then.
            warnings.simplefilter("ignore", CoverageWarning)
            tracer.start()


@pytest.fixture(autouse=True, scope="session")
def children_untraced() -> Iterator[None]:
    """The hundreds of programs that tests start take a second each to be traced, and run what tests run anyway."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def home_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the record, the settings or the data of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("CONFIG", "DATA", "STATE"):
            patch.setenv(f"XDG_{kind}_HOME", str(tmp_path_factory.mktemp(kind.lower())))
        yield


@pytest.fixture(autouse=True)
def no_gateway_remembered() -> Iterator[None]:
    """No test finds the gateway that another one has started."""
    yield
    Path(os.environ["XDG_STATE_HOME"], "supaclaw", "gateways.json").unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def plain_logs() -> None:
    """What a test makes fail is told without pictures of every frame, which take a second each."""
    *processors, _ = structlog.get_config()["processors"]
    structlog.configure(processors=[*processors, ConsoleRenderer(exception_formatter=plain_traceback)])


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Reading all authorities takes 20 ms, and most tests make a client: those of one file share one context."""
    make, read = ssl.create_default_context, ssl.SSLContext.load_verify_locations
    made: dict[object, ssl.SSLContext] = {}
    known: WeakKeyDictionary[ssl.SSLContext, set[object]] = WeakKeyDictionary()

    def made_once(purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, **files: Any) -> ssl.SSLContext:
        environ = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
        key = purpose, *sorted(files.items()), environ
        if key not in made:
            made[key] = make(purpose, **files)
        return made[key]

    def read_once(context: ssl.SSLContext, cafile: Any = None, capath: Any = None, cadata: Any = None) -> None:
        if (cafile, capath, cadata) not in known.setdefault(context, set()):
            read(context, cafile, capath, cadata)
            known[context].add((cafile, capath, cadata))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", made_once)
        patch.setattr(ssl.SSLContext, "load_verify_locations", read_once)
        yield


class CompiledTemplates(BytecodeCache):
    """Templates as Python's code, which holds for every app of the process."""

    def __init__(self) -> None:
        self._codes: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if code := self._codes.get(bucket.key):
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._codes[bucket.key] = bucket.bytecode_to_string()


@pytest.fixture(scope="session", autouse=True)
def templates_compiled_once() -> Iterator[None]:
    """Nearly every test of the web builds the app, and what its pages share takes 25 ms to compile."""
    made = partialmethod(Environment.__init__, bytecode_cache=CompiledTemplates())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Environment, "__init__", made)
        yield


@pytest.fixture(scope="session", autouse=True)
def routes_built_once() -> Iterator[None]:
    """Nearly every test of the web builds the app."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_IncludedRouter, METHOD, RoutesBuiltOnce())
        yield


class Maintenance:
    """A superuser's connection in a loop of its own: each test has another loop, and a login for each takes 5 ms."""

    def __init__(self, dsn: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="maintenance", daemon=True)
        self._thread.start()
        self._connection = self._ask(asyncpg.connect(dsn)).result()
        self._turn = asyncio.Lock()

    async def run(self, statement: str) -> None:
        await asyncio.wrap_future(self._ask(self._execute(statement)))

    def close(self) -> None:
        self._ask(self._connection.close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _execute(self, statement: str) -> None:
        async with self._turn:
            await self._connection.execute(statement)

    def _ask(self, work: Coroutine[None, None, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server whose database `supaclaw` is migrated and serves as the template."""

    dsn: str
    maintenance_dsn: str
    member_password: str
    maintenance: Maintenance

    def dsn_of(self, database: str) -> str:
        return self.dsn.replace("@/supaclaw?", f"@/{database}?")

    @asynccontextmanager
    async def fresh(self, *, migrated: bool = True) -> AsyncIterator[str]:
        """The address of a database of its own, which is dropped afterwards."""
        name = f"test_{uuid4().hex}"
        source = "template supaclaw strategy file_copy" if migrated else ""
        await self.maintain(f"create database {name} owner supaclaw {source}")
        yield self.dsn_of(name)
        await self.maintain(f"drop database {name} with (force)")

    async def maintain(self, *statements: str) -> None:
        for statement in statements:
            await self.maintenance.run(statement)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The session's Postgres."""
    _clear_after_killed_sessions()
    data = Path(tempfile.mkdtemp(prefix=HOMES, dir=_environments()))
    postgres = EmbeddedPostgres(data)
    with opened(data) as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        try:
            server = asyncio.run(serve(postgres))
            yield server
            server.maintenance.close()
        finally:
            asyncio.run(postgres.stop())
            shutil.rmtree(data)


@pytest.fixture
async def dsn(server: Server) -> AsyncIterator[str]:
    """The address of a fresh, migrated database."""
    async with server.fresh() as dsn:
        yield dsn


@pytest.fixture
async def empty_dsn(server: Server) -> AsyncIterator[str]:
    """The address of a database without our schema."""
    async with server.fresh(migrated=False) as dsn:
        yield dsn


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    """A fresh, migrated database."""
    async with await Database.connect(dsn) as database:
        yield database


def _clear_after_killed_sessions() -> None:
    """Servers outlive who started them; a session that was killed could not stop its own, but let go of its lock."""
    for home in (home for place in (MEMORY, Path(tempfile.gettempdir())) for home in place.glob(f"{HOMES}*")):
        with suppress(BlockingIOError, PermissionError, FileNotFoundError), opened(home) as alive:
            if (home / "postgres").exists():
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
                asyncio.run(EmbeddedPostgres(home).stop())
                shutil.rmtree(home)


def _environments() -> Path:
    spacious = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH
    return MEMORY if spacious else Path(tempfile.gettempdir())


async def serve(postgres: EmbeddedPostgres) -> Server:
    """Start it, with nothing worth keeping in it."""
    dsn = await postgres.start()
    administration = postgres.superuser_dsn("postgres")
    server = Server(dsn, administration, postgres.member_password, Maintenance(administration))
    await server.maintain(*(f"alter system set {setting}" for setting in SETTINGS), "select pg_reload_conf()")
    async with await Database.connect(dsn) as database:
        await migrate(database)
    return server
