"""A database that is there and refuses: whom it lets in, what it lets them do, what stands before it."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from gateway.store.embedded.cluster import MEMBERS
from tests.chaos.conftest import FULL, Judge
from tests.chaos.faults import Fault
from tests.chaos.proxy import Refusal
from tests.chaos.test_postgres import Scene
from tests.chaos.test_postgres import scene as scene
from tests.conftest import Server

AWAY = 12.0 if FULL else 4.0
ROLE = "supaclaw"
PRIMARY = "no primary for target_session_attrs"
RAISES = """
create function supaclaw.chaos() returns trigger language plpgsql as $$
begin raise exception 'made by a test' using errcode = '{state}'; end $$;
create trigger chaos before insert or update on supaclaw.{table} for each row execute function supaclaw.chaos();
"""


@dataclass
class Refuser:
    """Makes the database of a scene refuse, by statements of its administrator's."""

    scene: Scene
    server: Server

    @property
    def name(self) -> str:
        return (self.scene.process.dsn or "").partition("@/")[2].partition("?")[0]

    @property
    def password(self) -> str:
        return self.server.dsn.partition(f"{ROLE}:")[2].partition("@")[0]

    @asynccontextmanager
    async def altered(self, made: str, restored: str) -> AsyncIterator[None]:
        """For new connections, and there are only new ones."""
        await self.server.maintain(made)
        self.scene.proxy.drop()
        try:
            yield
        finally:
            await self.server.maintain(restored)
        self.scene.proxy.drop()

    @asynccontextmanager
    async def renamed(self) -> AsyncIterator[None]:
        await self.scene.proxy.refuse()
        end = f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{self.name}'"
        await self.server.maintain(end, f"alter database {self.name} rename to {self.name}_x")
        await self.scene.proxy.listen()
        try:
            yield
        finally:
            await self.server.maintain(f"alter database {self.name}_x rename to {self.name}")

    @asynccontextmanager
    async def executed(self, made: str, restored: str) -> AsyncIterator[None]:
        """In the database itself, under the connections there are."""
        async with self.scene.process.connected() as conn:
            await conn.execute(made)
        try:
            yield
        finally:
            async with self.scene.process.connected() as conn:
                await conn.execute("set default_transaction_read_only = off")
                await conn.execute(restored)

    @asynccontextmanager
    async def flapping(self) -> AsyncIterator[None]:
        """Every half second another thing, then nothing."""

        async def flap() -> None:
            for state, words in itertools.cycle(
                [("28000", b""), ("XX000", b"BEGIN;"), ("57P03", b""), ("42501", b"inbox")]
            ):
                self.scene.proxy.refusal = Refusal(state, "flapping", words)
                self.scene.proxy.drop()
                await asyncio.sleep(0.5)
                self.scene.proxy.refusal = None
                await asyncio.sleep(0.3)

        flapping = asyncio.create_task(flap())
        yield
        flapping.cancel()
        self.scene.proxy.refusal = None

    @asynccontextmanager
    async def pooler(self, state: str, text: str, words: bytes = b"") -> AsyncIterator[None]:
        self.scene.proxy.refusal = Refusal(state, text, words)
        self.scene.proxy.drop()
        yield
        self.scene.proxy.refusal = None


Refused: TypeAlias = Callable[[Refuser], AbstractAsyncContextManager[None]]


def revoked(what: str, table: str) -> Refused:
    return lambda to: to.executed(
        f"revoke {what} on supaclaw.{table} from {ROLE}", f"grant {what} on supaclaw.{table} to {ROLE}"
    )


def raising(state: str, table: str) -> Refused:
    return lambda to: to.executed(
        RAISES.format(state=state, table=table), f"drop trigger chaos on supaclaw.{table}; drop function supaclaw.chaos"
    )


def setting(name: str, value: str) -> Refused:
    return lambda to: to.altered(
        f"alter database {to.name} set {name} = {value}", f"alter database {to.name} reset {name}"
    )


QUICK: dict[str, Refused] = {
    "login": lambda to: to.altered(f"alter role {ROLE} nologin", f"alter role {ROLE} login"),
    "rights": revoked("insert", "inbox"),
}
LONG: dict[str, Refused] = {
    "password": lambda to: to.altered(
        f"alter role {ROLE} password 'another'", f"alter role {ROLE} password '{to.password}'"
    ),
    "connections": lambda to: to.altered(
        f"alter role {ROLE} connection limit 0", f"alter role {ROLE} connection limit -1"
    ),
    "renamed": lambda to: to.renamed(),
    "read-only": setting("default_transaction_read_only", "on"),
    "statement_timeout": setting("statement_timeout", "1"),
    "idle timeout": setting("idle_in_transaction_session_timeout", "1"),
    "row security": lambda to: to.executed(
        "alter table supaclaw.messages force row level security",
        "alter table supaclaw.messages no force row level security",
    ),
    "renamed table": lambda to: to.executed(
        "alter table supaclaw.tasks rename to tusks", "alter table supaclaw.tusks rename to tasks"
    ),
    **{
        f"rights of {table}": revoked("all", table)
        for table in ("messages", "tasks", "outbox", "sessions", "task_steps")
    },
    "schema": lambda to: to.executed(
        f"revoke all on schema supaclaw from {ROLE}", f"set role supaclaw; grant all on schema supaclaw to {ROLE}"
    ),
    **{
        f"{state} from {table}": raising(state, table)
        for table in ("inbox", "messages", "outbox", "tasks")
        for state in ("XX000", "0A000", "42501")
    },
    "not valid for any": raising("23514", "inbox"),
    "no trigger lets any pass": raising("P0001", "inbox"),
    **{
        f"no trigger lets any {table} pass": raising("P0001", table)
        for table in ("messages", "outbox", "tasks", "task_steps")
    },
    "members": lambda to: to.altered(f"revoke {MEMBERS} from {ROLE}", f"grant {MEMBERS} to {ROLE}"),
    "flapping": lambda to: to.flapping(),
    PRIMARY: setting("default_transaction_read_only", "on"),
    "pg_hba": lambda to: to.pooler("28000", "pg_hba.conf rejects connection"),
    "pooler at login": lambda to: to.pooler("XX000", "server_login_retry: too many"),
    "pooler at begin": lambda to: to.pooler("XX000", "no more connections allowed", b"BEGIN;"),
    "pooler by protocol": lambda to: to.pooler("08P01", "no such user"),
    "pooler without feature": lambda to: to.pooler("0A000", "not supported", b"BEGIN;"),
    "pooler at an insert": lambda to: to.pooler("XX000", "server conn crashed?", b"insert into inbox"),
}


@pytest.mark.fault(Fault.REFUSES)
@pytest.mark.parametrize("how", [*QUICK, *(pytest.param(how, marks=pytest.mark.chaos) for how in LONG)])
async def test_what_is_said_while_it_refuses_is_answered_after_it(
    scene: Scene, judge: Judge, server: Server, how: str
) -> None:
    if how == PRIMARY:
        scene.process.environ["SUPACLAW_DATABASE_URL"] += "&target_session_attrs=read-write"
    await scene.process.start()
    await scene.people.go_on(1.0)
    async with (QUICK | LONG)[how](Refuser(scene, server)):
        await scene.people.go_on(AWAY, pause=0.4)
        assert scene.process.running.returncode is None
    await scene.close(judge, Fault.REFUSES, time.time(), how)
    assert not [sent.text for sent in scene.telegram.sent if "set aside" in sent.text or "attempts failed" in sent.text]


@pytest.mark.chaos
@pytest.mark.fault(Fault.REFUSES)
async def test_a_kill_and_a_start_while_it_refuses_lose_nothing(scene: Scene, judge: Judge, server: Server) -> None:
    await scene.process.start()
    await scene.people.go_on(1.0)
    async with Refuser(scene, server).pooler("28000", "role may not log in"):
        for _ in range(3):
            await scene.people.go_on(2.0, pause=0.4)
            await scene.process.kill()
            await scene.process.spawn()
        await scene.process.hears("start.waits")
    await scene.process.hears("ready")
    await scene.close(judge, Fault.REFUSES, time.time(), "kills while it refuses", tries=3)
