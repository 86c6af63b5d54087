"""The sender while the database comes and goes: what the platform said is not forgotten, nothing is sent twice."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.app.checks.database import check_database
from gateway.domain.channels.channel import SendDelayed, SendFailed, SendUncertain
from gateway.domain.errors import DatabaseDown, OwnerMustAct, TryAgainLater
from gateway.flow.outbound import delivery as attempt_module
from gateway.flow.outbound import sender as sender_module
from gateway.flow.outbound.delivery import UNCONFIRMED
from gateway.store.connection.pool import Database
from gateway.store.delivery import outbox
from tests.app.checks.contexts import examine_with
from tests.flow.outbound.test_sender import STATES, SURE, sent, unsent
from tests.flow.path import MessagePath

Break = Callable[..., None]


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Make a statement fail at its first calls, before or after it took effect."""
    monkeypatch.setattr(sender_module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(attempt_module, "POLL_SECONDS", 0.01)

    def breaking(name: str, *errors: Exception, afterwards: bool = False) -> None:
        really, left = getattr(outbox, name), list(errors)

        async def statement(*arguments: Any) -> Any:
            if left and not afterwards:
                raise left.pop(0)
            result = await really(*arguments)
            if left:
                raise left.pop(0)
            return result

        monkeypatch.setattr(outbox, name, statement)

    return breaking


async def test_looking_for_work_goes_on_when_the_database_is_back(path: MessagePath, breaks: Break) -> None:
    breaks("due", DatabaseDown("away"), DatabaseDown("away"))
    await unsent(path, "one", "two")
    assert await sent(path, count=2) == ["one", "two"]


@pytest.mark.parametrize("trouble", [DatabaseDown("away"), TryAgainLater("too busy")])
async def test_a_receipt_is_written_however_long_that_takes(
    path: MessagePath, breaks: Break, trouble: TryAgainLater
) -> None:
    breaks("mark_sent", *[trouble] * 5)
    await unsent(path, "hello")
    await sent(path, count=1)
    assert (path.channel.asked, await path.rows(STATES)) == (1, [("hello", "sent")])


async def test_a_receipt_that_fails_for_no_known_reason_is_tried_again(path: MessagePath, breaks: Break) -> None:
    breaks("mark_sent", RuntimeError("a bug"), RuntimeError("a bug"))
    await unsent(path, "hello")
    await sent(path, count=1)
    assert (path.channel.asked, await path.rows(STATES)) == (1, [("hello", "sent")])


@pytest.mark.parametrize(("idempotent", "asked"), [(False, 1), (True, 8)])
async def test_one_that_can_never_be_written_blocks_nothing_that_follows(
    database: Database, path: MessagePath, breaks: Break, idempotent: bool, asked: int
) -> None:
    if idempotent:
        path.channel.capabilities = SURE
    async with database.connection() as conn:
        await conn.execute(
            """create function refuse() returns trigger language plpgsql as $$ begin raise 'no such thing'; end $$;
               create trigger refuse before update on outbox for each row
                 when (new.state = 'sent' and new.text = 'hello') execute function refuse()"""
        )
    breaks("due")  # looks again at once
    await unsent(path, "hello", "later")
    assert (await sent(path, count=asked + 2))[-2:] == ["later", UNCONFIRMED]
    states = [("hello", "uncertain"), ("later", "sent"), (UNCONFIRMED, "sent")]
    assert (path.channel.asked, await path.rows(STATES)) == (asked + 2, states)


REFUSES = """
create function refuse() returns trigger language plpgsql as $$ begin
  raise exception 'no' using errcode = '{code}';
end $$;
create trigger refuse before update on outbox for each row execute function refuse()"""


@pytest.mark.parametrize("code", ["42501", "0A000", "XX000", "28000", "3D000", "25006", "57P01"])
@pytest.mark.parametrize(
    ("answer", "states"),
    [
        (None, [("hello", "sent")]),
        (SendFailed("blocked"), [("hello", "failed")]),
        (SendDelayed("flood"), [("hello", "pending")]),
        (SendUncertain("no answer"), [("hello", "uncertain"), (UNCONFIRMED, "sent")]),
    ],
    ids=["sent", "refused", "delayed", "doubtful"],
)
async def test_a_database_that_refuses_every_write_gets_what_became_of_it_once_it_does_not(
    database: Database, path: MessagePath, breaks: Break, code: str, answer: Exception | None, states: list[Any]
) -> None:
    path.channel.faults = [answer] if answer else []
    path.channel.gates["1"] = asyncio.Event()
    await unsent(path, "hello")
    running = asyncio.create_task(path.outbound.run())
    await path.channel.until_asked(1)
    async with database.connection() as conn:
        await conn.execute(REFUSES.format(code=code))
    path.channel.gates.pop("1").set()
    await asyncio.sleep(0.2)
    assert await path.rows(STATES) == [("hello", "sending")]
    async with database.connection() as conn:
        await conn.execute("drop trigger refuse on outbox")
    await path.outbound.drain(5)
    running.cancel()
    await asyncio.wait([running])
    assert await path.rows(STATES) == states


async def test_what_a_process_left_that_is_gone_is_found_without_a_restart(path: MessagePath, breaks: Break) -> None:
    await unsent(path, "hello", "later")
    taken = """update outbox set state = 'sending', attempts = 1, sending_at = now() - interval '{}'
               where id = 1 returning 1"""
    await path.rows(taken.format("59 minutes"))
    running = asyncio.create_task(path.outbound.run())
    await path.outbound.drain(5)
    assert path.channel.texts == []
    await path.rows(taken.format("61 minutes"))
    path.signals.outbox.set()
    assert await path.channel.until(lambda texts: len(texts) == 2) == ["later", UNCONFIRMED]
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("afterwards", [False, True])
@pytest.mark.parametrize("trouble", [DatabaseDown("away"), TryAgainLater("busy"), OwnerMustAct("no"), RuntimeError()])
async def test_what_could_not_be_announced_has_not_left_and_waits(
    path: MessagePath, breaks: Break, trouble: Exception, afterwards: bool
) -> None:
    breaks("mark_sending", trouble, afterwards=afterwards)
    await unsent(path, "hello")
    running = asyncio.create_task(path.outbound.run())
    await path.outbound.drain(5)
    assert (path.channel.asked, await path.rows(STATES)) == (0, [("hello", "pending")])
    await path.rows("update outbox set run_at = now() returning id")
    assert await path.channel.until(bool) == ["hello"]
    running.cancel()
    await asyncio.wait([running])


async def test_a_bug_here_stops_neither_this_chat_nor_another(path: MessagePath, breaks: Break) -> None:
    breaks("mark_sent", ZeroDivisionError())
    await unsent(path, "one", "two")
    assert await sent(path, count=2) == ["one", "two"]


async def test_a_doubt_whose_commit_was_unknown_is_told_once(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, lost = path.database.run, [True]

    async def run(work: Any) -> Any:
        done = await really(work)
        if lost and await path.rows("select 1 from outbox where state = 'uncertain'"):
            lost.clear()
            raise DatabaseDown("gone at COMMIT")
        return done

    monkeypatch.setattr(path.database, "run", run)
    monkeypatch.setattr(sender_module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(attempt_module, "POLL_SECONDS", 0.01)
    path.channel.faults = [SendUncertain("no reply")]
    await unsent(path, "hello")
    assert await sent(path, count=1) == [attempt_module.UNCONFIRMED]
    assert await path.rows("select count(*) from outbox") == [(2,)]
    assert lost == []


async def test_a_defect_while_looking_for_work_ends_nothing(path: MessagePath, breaks: Break) -> None:
    breaks("due", ZeroDivisionError())
    await unsent(path, "one")
    assert await sent(path, count=1) == ["one"]


async def test_what_waits_is_told_with_its_reason(path: MessagePath, breaks: Break, dsn: str, tmp_path: Path) -> None:
    await unsent(path, "one", "two")
    assert await waits(path) == {}
    path.channel.faults = [SendDelayed("asks to wait 9 s", 9.0)]
    running = asyncio.create_task(path.outbound.run())
    await path.channel.until_asked(1)
    await path.outbound.drain(5)
    running.cancel()
    await asyncio.wait([running])
    [(name, told)] = (await waits(path)).items()
    assert (name, re.sub(r"\d{4}-.{14}", "then", told)) == ("fake", "2 waiting since then UTC: asks to wait 9 s")
    findings = await asyncio.to_thread(examine_with(tmp_path), check_database, SUPACLAW_DATABASE_URL=dsn)
    assert [finding.text for finding in findings if "waiting" in finding.text] == [f"answers for fake: {told}"]
    assert f"For fake {told}" in (await path.ask("/status")).split("\n")
    await path.rows("update outbox set error = null, created_at = now() - interval '2 minutes' returning 1")
    assert (await waits(path))["fake"].endswith("UTC")


async def waits(path: MessagePath) -> dict[str, str]:
    async with path.database.connection() as conn:
        return await outbox.waiting(conn)
