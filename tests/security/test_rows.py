"""Finding 13: whatever SQL a member's tools are made to run, it reaches and touches that member's rows alone."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from gateway.app.storage.database import reach
from gateway.config.environment import Environment
from gateway.config.model import Config
from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.ids import AddressId, FileId, MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.principals import Label, Role
from gateway.domain.work.schedules import ScheduleDefinition
from gateway.domain.work.tasks import Lane
from gateway.store.connection.pool import MEMBER_CONNECTIONS, Connection, Database, member_token
from gateway.store.delivery import addresses, outbox
from gateway.store.delivery.outbox import OutboxPart
from gateway.store.files import attachments, files
from gateway.store.migrate import migrate
from gateway.store.people import principals
from gateway.store.transcript import messages, sessions
from gateway.store.work import schedules, tasks
from tests.conftest import Server


@dataclass(frozen=True, slots=True)
class Person:
    """One of everything that a member has."""

    principal: PrincipalId
    session: SessionId
    address: AddressId
    message: MessageId
    file: FileId
    task: TaskId
    schedule: int
    journal: int


@dataclass(frozen=True, slots=True)
class Two:
    """A member whose tools are hijacked, and another."""

    database: Database
    eve: Person
    bo: Person

    def filled(self, statement: str) -> str:
        return statement.format(eve=self.eve, bo=self.bo)

    async def as_eve(self, *statements: str) -> list[asyncpg.Record]:
        async with self.database.bound(self.eve.principal).transaction() as tx:
            for statement in statements[:-1]:
                await tx.execute(self.filled(statement))
            return await tx.fetch(self.filled(statements[-1]))

    async def value(self, question: str, *arguments: object) -> Any:
        async with self.database.connection() as conn:
            return await conn.fetchval(question, *arguments)


def plan(name: str) -> ScheduleDefinition:
    return ScheduleDefinition(name, "think", None, "UTC")


async def live(database: Database, name: str) -> Person:
    async with database.transaction() as tx:
        who = await principals.add(tx, Role.MEMBER, name, [f"fake:{name}"])
        session = await sessions.start(tx, who, Label.UNTRUSTED)
        await addresses.add(tx, Address("fake", "bot", name), who, session, private=True)
        at = await addresses.find(tx, Address("fake", "bot", name))
        assert at is not None
        said = await messages.say(tx, session, who, AssistantText("hello"), label=Label.KNOWN, address=at.id)
        await files.keep(tx, who, "a.txt", size=1, mime="text/plain", sha256="1", label=Label.KNOWN, origin=files.OWN)
        file = await files.get(tx, who, "a.txt")
        task = await tasks.create(tx, who, "agent", Lane.AGENTS)
        planned = await schedules.add(
            tx, who, plan(name), next_run_at=None, origin="fake", label=Label.UNTRUSTED, address=at.id
        )
        journal = await tx.fetchval(
            "insert into journals (principal_id, session_id, path) values ($1, $2, 'x') returning id", who, session
        )
    assert file is not None
    assert task is not None
    assert planned is not None
    return Person(who, session, at.id, said.id, file.id, task, planned.id, journal)


@pytest.fixture
async def two(dsn: str, server: Server) -> AsyncIterator[Two]:
    async with await Database.connect(f"{dsn}&member_password={server.member_password}") as database:
        yield Two(database, await live(database, "eve"), await live(database, "bo"))


MESSAGE = """insert into messages (principal_id, session_id, address_id, seq, kind, text, label, origin, task_id,
               journal_id, answered_by)
             values ('{eve.principal}', %s, %s, 90, %s, 'evil', %s, 'agent', %s, %s, %s)"""
OUTBOX = "insert into outbox (principal_id, address_id, message_id, text, file_id) values ('{eve.principal}', %s)"
ATTACHMENT = """insert into attachments
                  (principal_id, session_id, message_id, file_id, place, channel, ref, name, mime, state)
                values ('{eve.principal}', %s, %s, %s, 7, 'fake', '', '', '', 'stored')"""
SCHEDULE = """insert into schedules (principal_id, name, prompt, origin, label, address_id, task_id)
              values ('{eve.principal}', 'new', 'do', 'fake', %s, %s, %s)"""
MINE = ("'{eve.session}'", "{eve.address}", "'assistant'", "1", "null", "null", "null")


def message(**changed: str) -> str:
    columns = ("session", "address", "kind", "label", "task", "journal", "answered_by")
    return MESSAGE % tuple(changed.get(name, own) for name, own in zip(columns, MINE, strict=True))


ROWS = {
    "a message in another's session": message(session="'{bo.session}'"),
    "a message at another's address": message(address="{bo.address}"),
    "a message with the owner's label": message(label="0"),
    "a message as if a person had said it": message(kind="'user'"),
    "a message of another's task": message(task="'{bo.task}'"),
    "a message in another's journal": message(journal="{bo.journal}"),
    "a message that another's answers": message(answered_by="{bo.message}"),
    "a message for another": message().replace("{eve.principal}", "{bo.principal}"),
    "something sent to another's address": OUTBOX % "{bo.address}, {eve.message}, 'evil', null",
    "another's message sent": OUTBOX % "{eve.address}, {bo.message}, 'evil', null",
    "another's file sent": OUTBOX % "{eve.address}, {eve.message}, 'evil', '{bo.file}'",
    "a file at another's session": ATTACHMENT % ("'{bo.session}'", "{eve.message}", "'{eve.file}'"),
    "a file at another's message": ATTACHMENT % ("'{eve.session}'", "{bo.message}", "'{eve.file}'"),
    "another's file": ATTACHMENT % ("'{eve.session}'", "{eve.message}", "'{bo.file}'"),
    "a schedule for another's address": SCHEDULE % ("1", "{bo.address}", "null"),
    "a schedule with the owner's label": SCHEDULE % ("0", "null", "null"),
    "a schedule that waits for another's task": SCHEDULE % ("1", "null", "'{bo.task}'"),
    "a schedule that moves to another's address": "update schedules set address_id = {bo.address}",
    "a schedule that becomes another's": "update schedules set principal_id = '{bo.principal}'",
    "a schedule that is trusted again": "update schedules set label = 1",
    "a session that is trusted again": "update sessions set label = 1",
    "a session that is trusted as the owner": "update sessions set label = 0",
    "a chat in another's session": "update addresses set session_id = '{bo.session}'",
    "a file trusted as the owner's": "update files set label = 0",
    "a file that becomes another's": "update files set principal_id = '{bo.principal}'",
}


@pytest.mark.parametrize("row", ROWS)
async def test_no_row_reaches_into_anothers_or_is_trusted_too_much(two: Two, row: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await two.as_eve(ROWS[row])


@pytest.mark.parametrize(
    "statement",
    [
        "set role supaclaw",
        "set session authorization supaclaw",
        "select key from member_keys",
        "select * from api_tokens",
        "select * from principals",
        "select * from pairings",
        "select * from meta",
        "select input from tasks",
        "select rolpassword from pg_authid",
        "select count(*) from claim('{bo.principal}', 'agents', 5, '30 s', null)",
        "select cancel('{bo.task}')",
        "select finish('{bo.task}', 0, 'completed')",
        "delete from messages",
        "update messages set text = 'evil'",
        "truncate files",
        "alter table messages disable row level security",
        "drop policy own on messages",
        "alter table sessions disable trigger sessions_label_kept",
        "create or replace function supaclaw.member() returns uuid language sql as 'select null::uuid'",
        "alter role supaclaw_member bypassrls",
        "create role other superuser",
        "grant supaclaw to supaclaw_member",
        "copy messages to program 'cat'",
        "copy files to '/tmp/evil'",
        "select pg_read_file('/etc/passwd')",
        "create table supaclaw.evil (id int)",
    ],
)
async def test_nothing_else_of_the_database_is_within_reach(two: Two, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await two.as_eve(statement)


TABLES = ("messages", "sessions", "addresses", "files", "schedules", "outbox", "attachments")


@pytest.mark.parametrize("table", TABLES)
async def test_only_ones_own_rows_are_seen(two: Two, table: str) -> None:
    seen = await two.as_eve(f"select principal_id from {table}")
    assert {row["principal_id"] for row in seen} <= {two.eve.principal}


PRETEND = (
    "reset role",
    "set role none",
    "set role supaclaw_member",
    "set supaclaw.principal = '{bo.principal}'",
    "select set_config('supaclaw.principal', '{bo.principal}', true)",
)


@pytest.mark.parametrize("statement", PRETEND)
async def test_a_role_or_a_setting_makes_nobody_another(two: Two, statement: str) -> None:
    seen = await two.as_eve(statement, "select principal_id, current_user::text as role from messages")
    assert {tuple(row) for row in seen} == {(two.eve.principal, "supaclaw_member")}


def forged(two: Two, own: str) -> dict[str, str]:
    """Tokens that the key never sealed, or that are over."""
    bo = two.bo.principal
    return {
        "nothing": "",
        "no token": "bo",
        "a name alone": bo.hex,
        "another's name under one's own seal": bo.hex + own[32:],
        "a longer life under one's own seal": own[:32] + "7" * 16 + own[48:],
        "a key that was guessed": member_token(bytes(32), bo, 2**40),
        "one's own, cut": own[:-2],
        "one's own, in capitals": own.upper(),
    }


async def test_no_token_but_the_gateways_counts(two: Two) -> None:
    (row,) = await two.as_eve("select current_setting('supaclaw.member')")
    for kind, token in forged(two, row[0]).items():
        put = f"select set_config('supaclaw.member', '{token}', true)"
        assert await two.as_eve(put, "select * from messages") == [], kind


async def test_a_token_ends(two: Two) -> None:
    key, now = await two.value("select key from member_keys"), await two.value("select extract(epoch from now())")
    for until, seen in ((float(now) - 1, None), (float(now) + 60, two.bo.principal)):
        put = f"select set_config('supaclaw.member', '{member_token(key, two.bo.principal, until)}', true)"
        assert [row[0] for row in await two.as_eve(put, "select supaclaw.member()")] == [seen]


async def test_row_security_cannot_be_switched_off(two: Two) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await two.as_eve("set row_security = off", "select * from messages")


async def test_what_one_leaves_on_a_connection_does_not_meet_the_next(two: Two) -> None:
    """All connections are used, so that the next has one of them."""
    traps = (
        "create temporary table files as select * from supaclaw.files",
        "set search_path to pg_temp, supaclaw",
        "set default_transaction_read_only to on",
        "set role none",
        "prepare evil as select 1",
        "select set_config('supaclaw.member', current_setting('supaclaw.member'), false)",
    )
    both = asyncio.Barrier(MEMBER_CONNECTIONS)

    async def lay(tx: Connection) -> None:
        await both.wait()
        for trap in traps:
            await tx.execute(trap)

    await asyncio.gather(*(two.database.bound(two.eve.principal).run(lay) for _ in range(MEMBER_CONNECTIONS)))
    async with two.database.bound(two.bo.principal).transaction() as tx:
        await files.keep(
            tx, two.bo.principal, "b.txt", size=1, mime="", sha256="2", label=Label.KNOWN, origin=files.OWN
        )
        assert await tx.fetchval("select count(*) from pg_prepared_statements where name = 'evil'") == 0
    assert await two.value("select principal_id from supaclaw.files where path = 'b.txt'") == two.bo.principal


async def test_temporary_tables_never_stand_in_for_ours(two: Two) -> None:
    await two.as_eve("create temporary table messages (text text)", "select 1")
    (row,) = await two.as_eve("create temporary table messages (text text)", "select count(*) from messages")
    assert row[0] == 1


async def test_members_share_a_login_of_their_own_and_two_connections(two: Two) -> None:
    logins = "select count(*) from pg_stat_activity where usename = 'supaclaw_member' and datname = current_database()"
    most = 0

    async def look(tx: Connection) -> None:
        nonlocal most
        assert await tx.fetchval("select session_user::text") == "supaclaw_member"
        most = max(most, await two.value(logins))

    people = (two.eve.principal, two.bo.principal)
    await asyncio.gather(*(two.database.bound(people[index % 2]).run(look) for index in range(12)))
    assert most == MEMBER_CONNECTIONS == 2
    assert await two.database.members_log_in()


@pytest.mark.parametrize("pooled", [False, True])
async def test_what_tools_do_still_works(two: Two, dsn: str, server: Server, pooled: bool) -> None:
    eve, mode = two.eve, "transaction" if pooled else "session"
    url = f"{dsn}&pool_mode={mode}&member_password={server.member_password}"
    async with await Database.connect(url) as database, database.bound(eve.principal).transaction() as tx:
        at = await addresses.lock_by_id(tx, eve.address)
        await sessions.lock(tx, at.session_id)
        await sessions.taint(tx, at.session_id, Label.UNTRUSTED)
        said = await messages.say(
            tx, at.session_id, eve.principal, AssistantText("hi"), label=Label.UNTRUSTED, address=at.id
        )
        await outbox.put(tx, eve.principal, at.id, said.id, [OutboxPart("hi", eve.file)])
        file = await files.get(tx, eve.principal, "a.txt")
        assert file is not None
        await attachments.add_kept(tx, eve.principal, said.id, "fake", [file.announced])
        row = await schedules.add(
            tx,
            eve.principal,
            plan("b"),
            next_run_at=None,
            origin="fake",
            label=Label.KNOWN,
            address=at.id,
        )
        assert row is not None
        assert await schedules.update(tx, row.id, plan("c"), None, label=Label.UNTRUSTED)
        assert await schedules.remove(tx, row.id)
    assert await two.value("select count(*) from outbox where principal_id = $1", eve.principal) == 1


@pytest.mark.parametrize("now", ["paused", "changed", "removed"])
async def test_a_schedule_whose_chat_became_anothers_is_still_its_persons(two: Two, now: str) -> None:
    """Its account was parted, say: from now on it answers where they wrote last."""
    eve, bo = two.eve, two.bo
    async with two.database.transaction() as tx:
        await addresses.hand_over(tx, eve.address, bo.principal, bo.session)
    async with two.database.bound(eve.principal).transaction() as tx:
        row = await schedules.get(tx, eve.principal, str(eve.schedule))
        assert row is not None
        if now == "removed":
            assert await schedules.remove(tx, row.id)
            return
        changed = (
            await schedules.pause(tx, row.id, paused=True, next_run_at=None)
            if now == "paused"
            else await schedules.update(tx, row.id, plan("other"), None, label=Label.KNOWN)
        )
    assert changed is not None
    assert (changed.address_id, changed.label) == (None, Label.UNTRUSTED)


async def test_what_members_had_before_is_known_at_best_and_still_theirs_to_change(empty_dsn: str) -> None:
    async with await Database.connect(empty_dsn) as database:
        await migrate(database, upto=11)
        async with database.transaction() as tx:
            rows = {}
            for role in (Role.OWNER, Role.MEMBER):
                who = await principals.add(tx, role, role, [f"fake:{role}"])
                await tx.execute("insert into sessions (id, principal_id, label) values ($1, $2, 0)", uuid4(), who)
                await files.keep(tx, who, "a.txt", size=1, mime="", sha256="1", label=Label.OWNER, origin=files.OWN)
                sql = "insert into schedules (principal_id, name, prompt, origin) values ($1, $2, $2, $2) returning id"
                rows[role] = who, await tx.fetchval(sql, who, "a")
        await migrate(database)
        async with database.connection() as conn:
            for table in ("sessions", "files", "schedules"):
                labels = f"select p.role, label from {table} join principals p on p.id = principal_id order by label"
                assert [tuple(row) for row in await conn.fetch(labels)] == [("owner", 0), ("member", 1)], table
        member, theirs = rows[Role.MEMBER]
        async with database.bound(member).transaction() as tx:
            for paused in (True, False):
                assert await schedules.pause(tx, theirs, paused=paused, next_run_at=None)
            assert await schedules.update(tx, theirs, plan("b"), None, label=Label.OWNER)


async def test_the_embedded_server_gives_members_a_login_from_the_start(tmp_path: Path) -> None:
    home = Environment(tmp_path / "config.json", tmp_path / "data", tmp_path / "data" / "workspace")
    async with reach(home, Config(), mine=True) as database:
        await migrate(database)
        async with database.bound(PrincipalId(uuid4())).connection() as conn:
            assert await conn.fetchval("select session_user::text") == "supaclaw_member"


async def test_without_a_login_the_role_is_taken_on_and_the_token_still_says_for_whom(two: Two, dsn: str) -> None:
    async with await Database.connect(f"{dsn}&member_password=wrong") as database:
        assert not await database.members_log_in()
        async with database.bound(two.eve.principal).connection() as conn:
            assert await conn.fetchval("select current_user::text") == "supaclaw_member"
            assert {row[0] for row in await conn.fetch("select principal_id from messages")} == {two.eve.principal}
            await conn.execute("select set_config('supaclaw.principal', $1, true)", str(two.bo.principal))
            assert {row[0] for row in await conn.fetch("select principal_id from messages")} == {two.eve.principal}


async def test_nobody_is_nobody(two: Two) -> None:
    async with two.database.bound(PrincipalId(uuid4())).connection() as conn:
        for table in TABLES:
            assert await conn.fetch(f"select * from {table}") == []
