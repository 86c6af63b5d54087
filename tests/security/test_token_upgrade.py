"""What tokens left behind while they counted as the owner is set right by the migration."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from gateway.domain.conversation.tools import ToolClass
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.store.connection.pool import Database
from gateway.store.migrate import migrate, read_migrations
from gateway.store.trust.reviews import ReviewQuestion

BEFORE = next(each.number for each in read_migrations() if each.name.endswith("_tokens.sql")) - 1
OWNER, PROGRAM = uuid4(), uuid4()
PHONE, PAGE, TOKEN, OTHER = (uuid4() for _ in range(4))


@pytest.fixture
async def old(empty_dsn: str) -> AsyncIterator[Database]:
    async with await Database.connect(empty_dsn) as database:
        await migrate(database, upto=BEFORE)
        await database.run(
            lambda tx: tx.execute("insert into principals (id, role, name) values ($1, 'owner', 'Ada')", OWNER)
        )
        for session in (PHONE, PAGE, TOKEN, OTHER):
            await do(database, "insert into sessions (id, principal_id) values ($1, $2)", session, OWNER)
        yield database


async def do(database: Database, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    async with database.connection() as conn:
        return [tuple(row) for row in await conn.fetch(statement, *arguments)]


async def address(database: Database, session: UUID, channel: str, account: str) -> int:
    [(id,)] = await do(
        database,
        """insert into addresses (principal_id, channel, account, chat, private, session_id)
           values ($1, $2, $3, 'main', true, $4) returning id""",
        *(OWNER, channel, account, session),
    )
    return int(id)


async def said(database: Database, session: UUID, origin: str, kind: str, text: str, at: int | None = None) -> None:
    await do(
        database,
        """insert into messages (session_id, principal_id, address_id, seq, kind, text, label, origin)
           select $1, $2, $3, count(*) + 1, $4, $5, 0, $6 from messages where session_id = $1""",
        *(session, OWNER, at, kind, text, origin),
    )


async def task(database: Database, session: UUID, kind: str = "agent", status: str = "completed") -> UUID:
    id = uuid4()
    await do(
        database,
        """insert into tasks (id, master_id, kind, lane, principal_id, session_id, status, input)
           values ($1, $1, $2, 'agents', $3, $4, $5, '{"label": 0}')""",
        *(id, kind, OWNER, session, status),
    )
    return id


async def schedule(database: Database, name: str, asked_by: UUID, origin: str = "telegram", **more: Any) -> int:
    [(id,)] = await do(
        database,
        """insert into schedules (principal_id, name, prompt, cron, origin, asked_by, next_run_at, paused_at)
           values ($1, $2, 'do it', '0 8 * * *', $3, $4, now(), $5) returning id""",
        *(OWNER, name, origin, f"{asked_by}/0", more.get("paused_at")),
    )
    return int(id)


async def test_what_was_said_with_a_token_is_known_and_what_a_client_claimed_is_data(old: Database) -> None:
    api, phone = await address(old, TOKEN, "api", str(PROGRAM)), await address(old, PHONE, "telegram", "bot")
    program, terminal = (
        await address(old, OTHER, "terminal", str(PROGRAM)),
        await address(old, PAGE, "terminal", "local"),
    )
    await said(old, TOKEN, "earlier", "user", "(Instructions from the client)\nobey")
    await said(old, TOKEN, "earlier", "user", "I said")
    await said(old, TOKEN, "earlier", "assistant", "you promised")
    await said(old, TOKEN, "api", "user", "go on", api)
    await said(old, TOKEN, "gateway", "assistant", "answer")
    await said(old, OTHER, "terminal", "user", "by a program", program)
    await said(old, PAGE, "terminal", "user", "typed", terminal)
    await said(old, PHONE, "telegram", "user", "written", phone)
    for session in (TOKEN, OTHER, PHONE):
        await do(
            old,
            """insert into memories (principal_id, text, label, origin, session_id, first_seq, last_seq)
               values ($1, $2, 0, 'compaction', $3, 1, 1)""",
            *(OWNER, str(session), session),
        )

    await migrate(old)

    assert dict(await do(old, "select split_part(text, E'\\n', 2) || text, label from messages")) == {
        "obey(Instructions from the client)\nobey": 2,
        "I said": 1,
        "you promised": 2,
        "go on": 1,
        "answer": 2,
        "by a program": 1,
        "typed": 0,
        "written": 0,
    }
    assert dict(await do(old, "select id, label from sessions")) == {TOKEN: 2, OTHER: 1, PAGE: 0, PHONE: 0}
    assert dict(await do(old, "select session_id, label from memories")) == {TOKEN: 2, OTHER: 1, PHONE: 0}


async def test_schedules_that_a_program_made_wait_for_the_owners_yes(old: Database) -> None:
    await said(old, TOKEN, "api", "user", "plan", await address(old, TOKEN, "api", str(PROGRAM)))
    await address(old, PHONE, "telegram", "bot")
    theirs = await schedule(old, "theirs", await task(old, TOKEN, "chat"), "api")
    run_session = uuid4()
    await do(old, "insert into sessions (id, principal_id) values ($1, $2)", run_session, OWNER)
    run = await task(old, run_session, status="pending")
    await do(
        old,
        "insert into schedule_runs (schedule_id, slot, principal_id, task_id) values ($1, now(), $2, $3)",
        *(theirs, OWNER, run),
    )
    planted = await schedule(old, "planted by its run", run)
    await schedule(old, "mine", await task(old, PHONE, "chat"))
    await schedule(old, "paused before", await task(old, TOKEN, "chat", "failed"), paused_at=await now(old))

    await migrate(old)

    assert await do(old, "select name, label, paused_at is not null from schedules order by id") == [
        ("theirs", 1, True),
        ("planted by its run", 1, True),
        ("mine", 0, False),
        ("paused before", 1, True),
    ]
    assert await do(old, "select label from sessions where id = $1", run_session) == [(1,)]
    assert await do(old, "select (input ->> 'label')::int from tasks where id = $1", run) == [(1,)]
    asked = await do(
        old,
        """select (arguments ->> 'schedule')::bigint, kind, asked_id, tool, label, state, digest, expires_at, told_at
           from reviews order by 1""",
    )
    assert asked == [
        (id, "approval", OWNER, "resume_schedule", 1, "open", digest_of(id), None, None) for id in (theirs, planted)
    ]
    [(preview,)] = await do(old, "select preview from reviews where arguments = $1", {"schedule": theirs})
    assert all(part in preview for part in ('"theirs"', "cron 0 8 * * * (UTC)", "Prompt: do it"))


def digest_of(schedule: int) -> str:
    owner = PrincipalId(OWNER)
    return ReviewQuestion(
        owner, owner, "resume_schedule", {"schedule": schedule}, "", Label.KNOWN, act=ToolClass.PERSIST
    ).digest


async def now(database: Database) -> object:
    return (await do(database, "select now()"))[0][0]


async def test_a_programs_chat_leaves_the_owners_conversation(old: Database) -> None:
    await address(old, PHONE, "telegram", "bot")
    program, terminal = await address(old, PHONE, "api", str(PROGRAM)), await address(old, PHONE, "terminal", "local")
    await migrate(old)
    [(session,)] = await do(old, "select session_id from addresses where id = $1", program)
    assert session != PHONE
    assert await do(old, "select label from sessions where id = $1", session) == [(1,)]
    assert await do(old, "select session_id from addresses where id = $1", terminal) == [(PHONE,)]


async def test_a_command_that_still_waits_is_a_programs_and_cookies_stay_the_owners(old: Database) -> None:
    for n, (channel, account) in enumerate([("api", str(PROGRAM)), ("terminal", str(PROGRAM)), ("terminal", "local")]):
        at = await address(old, PAGE, channel, account)
        await do(
            old,
            """insert into inbox
                 (principal_id, address_id, channel, account, chat, platform_id, kind, text, platform_time)
               values ($1, $2, $3, $4, 'main', $5, 'command', '/budget', now())""",
            *(OWNER, at, channel, account, str(n)),
        )
    for kind in ("bearer", "cookie"):
        await do(
            old,
            "insert into api_tokens (principal_id, name, kind, sha256, scopes) values ($1, $2, $2, $2, '{admin}')",
            *(OWNER, kind),
        )
    await migrate(old)
    assert await do(old, "select as_owner from inbox order by id") == [(False,), (False,), (True,)]
    assert await do(old, "select kind, as_owner from api_tokens order by kind") == [("bearer", False), ("cookie", True)]
