"""The embedded Postgres: started beside the gateway, outliving it, found again by a login."""

import asyncio
import time
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote, urlencode

import asyncpg
import structlog
from asyncpg.exceptions import (
    CannotConnectNowError,
    InternalServerError,
    InvalidAuthorizationSpecificationError,
    InvalidCatalogNameError,
    PostgresConnectionError,
    TooManyConnectionsError,
    UniqueViolationError,
)

from gateway.config.data.files import error_type
from gateway.domain.errors import DatabaseDown, DiskFull, OwnerMustAct, SupaclawError
from gateway.store.embedded.cluster import (
    DATABASE,
    MEMBERS,
    PASSWORD_FIX,
    ROLE,
    SOCKETS,
    SUPERUSER,
    ensure_cluster,
    member_role,
    read_passwords,
)
from gateway.store.embedded.postmaster import Postmaster, socket_folder
from gateway.store.embedded.programs import ServerLog
from gateway.store.errors import DISK_FULL

log = structlog.get_logger()

_REFUSED = (InvalidAuthorizationSpecificationError, InvalidCatalogNameError)
_COMPLETE = "select exists (select from pg_roles where rolname = $1 and rolcanlogin)"
_POLL = 0.01
_WATCH = 1.0
_CUT_OFF_LOOKS = 5
"""Every so many looks at the server are followed by one at its socket, which costs more."""
_SLOW = 5.0
_LOGIN_WITHIN = 5.0
_STOP_WITHIN = 30.0
_FIRST_DELAY, _LONGEST_DELAY, _STEADY_AFTER = 0.5, 30.0, 60.0


class EmbeddedPostgres:
    """The server of one data folder; every process that makes one of these finds the same server."""

    def __init__(self, data_dir: Path) -> None:
        home = data_dir.absolute()
        self._folder = home / "postgres"
        self._keys = home / "keys"
        self._log = ServerLog(home / "logs" / "postgres.log")
        self._postmaster = Postmaster(self._folder, self._log)

    @property
    def is_running(self) -> bool:
        """Whether any process of the server lives, be it ready or not."""
        return self._postmaster.is_alive

    async def start(self) -> str:
        """The DSN, once a login works; makes the cluster if there is none. Raises `OwnerMustAct` if it cannot run."""
        try:
            await asyncio.to_thread(ensure_cluster, self._folder, self._keys)
            return await self._bring_up()
        except OSError as error:
            fix = f"; {PASSWORD_FIX}" if str(self._keys) in str(error.filename) else ""
            raise error_type(error)(f"The embedded database cannot be used: {error}{fix}") from error

    async def stop(self) -> None:
        """End the server: connections are cut, committed data is safe."""
        if not self.is_running:
            return
        answer = await asyncio.to_thread(self._postmaster.ask_to_stop, "fast")
        if not await self._gone():
            answer = await asyncio.to_thread(self._postmaster.ask_to_stop, "immediate")
            if not await self._gone():
                raise DatabaseDown(f"Postgres does not stop: {answer}")

    async def supervise(self) -> NoReturn:
        """Start the server again whenever it died, until cancelled."""
        delay, started, looks = 0.0, time.monotonic(), 0
        while True:
            await asyncio.sleep(_WATCH)
            looks += 1
            if self.is_running:
                if looks % _CUT_OFF_LOOKS == 0:
                    await self._end_cut_off()
                    self._log.trim()
                continue
            if time.monotonic() - started > _STEADY_AFTER:
                delay = 0.0
            log.warning("postgres.died", restart_in=delay)
            await asyncio.sleep(delay)
            delay = min(max(delay * 2, _FIRST_DELAY), _LONGEST_DELAY)
            await self._revive()
            started = time.monotonic()

    def superuser_dsn(self, database: str = DATABASE) -> str:
        """For maintenance only; the gateway itself uses what `start` returns."""
        return self._dsn(SUPERUSER, read_passwords(self._keys)[SUPERUSER], database)

    @property
    def member_password(self) -> str:
        """The password of the role of members' tools."""
        return read_passwords(self._keys)[MEMBERS]

    def _dsn(self, user: str, password: str, database: str) -> str:
        host = urlencode({"host": str(socket_folder(self._folder / SOCKETS))})
        return f"postgresql://{user}:{quote(password)}@/{database}?{host}"

    async def _revive(self) -> None:
        try:
            await self._bring_up()
        except (SupaclawError, OSError) as error:
            failure = str(error)
            if not self._folder.exists():
                failure = f"{self._folder} is gone: stop the gateway and restore a backup; a start makes an empty one"
        else:
            log.info("postgres.started")
            return
        log.error("postgres.not_started", error=failure)

    async def _bring_up(self) -> str:
        """Wait for a login as long as the server lives: a crash recovery takes what it takes."""
        programs = await asyncio.to_thread(self._postmaster.programs)
        dsn = self._dsn(ROLE, read_passwords(self._keys)[ROLE], DATABASE)
        since: int | None = None
        slow_at = time.monotonic() + _SLOW
        while not await self._login(dsn):
            await self._end_cut_off()
            since = await asyncio.to_thread(self._postmaster.launch, programs, since)
            if time.monotonic() > slow_at:
                log.info("postgres.starting", last=self._log.last_line())
                slow_at += _SLOW
            await asyncio.sleep(_POLL)
        return dsn

    async def _end_cut_off(self) -> None:
        if not self._postmaster.check_cut_off():
            return
        await asyncio.sleep(_POLL)  # a server that has just been started makes its files one by one
        if self._postmaster.check_cut_off() and self.is_running:
            log.warning("postgres.socket_gone", hint="somebody deleted or replaced it; the server is started again")
            await self.stop()

    async def _login(self, dsn: str) -> bool:
        if not self._postmaster.says_ready:
            return False
        try:
            connection = await asyncpg.connect(dsn, timeout=_LOGIN_WITHIN)
        except TooManyConnectionsError:
            return True
        except (OSError, CannotConnectNowError, PostgresConnectionError):
            return False
        except _REFUSED as error:
            raise OwnerMustAct(
                f"{self._keys} does not fit the database in {self._folder}: {error}; {PASSWORD_FIX}"
            ) from error
        except asyncpg.PostgresError as error:
            kind = DiskFull if error.sqlstate == DISK_FULL else DatabaseDown
            raise kind(f"Postgres in {self._folder} lets nobody in: {error}") from error
        try:
            complete = await connection.fetchval(_COMPLETE, MEMBERS)
            await connection.close()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False  # it died meanwhile
        finally:
            connection.terminate()  # also when we are cancelled meanwhile
        if not complete:
            await self._add_member_role()
        return True

    async def _add_member_role(self) -> None:
        """A cluster of an older version has none that logs in; of two processes that see that, one makes it."""
        try:
            connection = await asyncpg.connect(self.superuser_dsn(), timeout=_LOGIN_WITHIN)
            try:
                await connection.execute("; ".join(member_role(self.member_password)))
            finally:
                await connection.close()
        except (InternalServerError, UniqueViolationError):
            pass  # two that write the same row at once
        except asyncpg.PostgresError as error:
            raise OwnerMustAct(f"The database in {self._folder} cannot be brought up to date: {error}") from error

    async def _gone(self) -> bool:
        give_up_at = time.monotonic() + _STOP_WITHIN
        while time.monotonic() < give_up_at:
            if not self.is_running:
                return True
            await asyncio.sleep(_POLL)
        return False
