"""The ledger finds what it is there to find."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.chaos.faults import Fault, elsewhere
from tests.chaos.ledger import Ledger, Outcome
from tests.chaos.people import Completed, Telegrammers, crowd
from tests.chaos.report import BEGIN, END, Collected, p95, put_between_markers
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, ROOT, GatewayProcess

Talked = tuple[Ledger, Telegrammers]


@pytest.fixture
async def talked(process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random) -> Talked:
    """Three messages and a command, all answered."""
    process.configure(crowd(telegram, models))
    await process.start()
    people, ledger = Telegrammers(telegram, chance, tools=0.0), Ledger(process, telegram)
    for chat in (OWNER, OWNER + 1, OWNER + 2):
        people.say(chat)
    people.command("/ping", OWNER)
    assert await ledger.settled()
    return ledger, people


async def test_a_ledger_tells_what_was_lost_doubled_and_left_open(talked: Talked) -> None:
    ledger, people = talked
    sent = people.telegram.sent
    clean = await ledger.count(people.said)
    assert (clean.is_clean, clean.acknowledged) == (True, 4)

    sent.append(sent[0])
    assert len((await ledger.count(people.said)).duplicated) == 2 - sent[0].text.startswith("pong")
    sent.pop()
    gone = sent.pop()
    lost = await ledger.count(people.said)
    assert len(lost.lost) == 1
    assert "was not shown" in lost.lost[0]
    sent.append(gone)

    async with ledger.process.connected() as conn:
        await conn.execute("update messages set text = 'never stored' where text like '%mk1x' and kind = 'user'")
        await conn.execute("update messages set answered_by = null where text like '%mk2x' and kind = 'user'")
        await conn.execute(
            "update messages set text = text || ' mk9x' where text = 'never stored' or text like '%mk3x'"
        )
    broken = await ledger.count(people.said, [Completed(77, "fin78x", 1)])
    assert broken.lost == ("mk1x: not stored", "mk2x: not answered", "mk77x: not stored")
    assert "mk9x stored 2×" in broken.duplicated
    assert any("mk77x got" in each for each in broken.broken)
    assert not await ledger.settled(0.3)


async def test_a_call_without_a_result_is_broken_unless_its_turn_was_given_up(talked: Talked) -> None:
    ledger, people = talked
    async with ledger.process.connected() as conn:
        put = """insert into messages (session_id, principal_id, task_id, label, origin, kind, text, ordinal, seq)
                 select session_id, principal_id, task_id, label, origin, $1, $2, $3::int, next.seq
                 from messages, lateral
                   (select max(seq) + 1 as seq from messages own where own.session_id = messages.session_id) next
                 where kind = 'assistant' and text like '%fin1x'"""
        await conn.execute(put, "tool_intent", "{}", 0)
        [broken] = (await ledger.count(people.said)).broken
        assert broken.startswith("call without its result")
        await conn.execute(put, "notice", "I could not answer: 3 attempts failed.", None)
    assert (await ledger.count(people.said)).broken == ()


async def test_what_the_platform_was_not_told_of_is_not_lost(talked: Talked) -> None:
    ledger, people = talked
    await ledger.process.kill()
    await asyncio.sleep(0)
    people.say(OWNER)
    assert (await ledger.count(people.said)).lost == ()
    assert not await ledger.settled(0.3)


def test_the_table_has_a_row_for_every_fault_and_says_what_failed(tmp_path: Path) -> None:
    collected = Collected()
    collected.add(Fault.RANDOM, Outcome(tries=5, recovery=(0.5, 1.0)), "seed 7")
    collected.add(Fault.RANDOM, Outcome(tries=5, lost=("mk1x: not stored",)))
    collected.passed_elsewhere("tests/journeys/test_crash.py::test_a_telegram_message_survives[turn.taken]", True)
    lines = collected.table().splitlines()[2:]
    assert len(lines) == len(Fault)
    assert {int(line.split("|")[1]) for line in lines} == {fault.about.number for fault in Fault}
    [row] = [line for line in lines if "random times" in line]
    assert "| 10 | 1 | 0 | 0 | 1.00 s | **FAILED**; seed 7 |" in row
    assert "| 1 | 0 | 0 | 0 | – | holds |" in lines[0]
    assert row in Collected().table(before=collected.table()), "what a run does not make stays as it was"

    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put_between_markers(page, "new")
    assert page.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="has no lines"):
        put_between_markers(page, "new")


def test_p95_is_the_figure_that_19_of_20_do_not_exceed() -> None:
    assert (p95([1.0]), p95([float(n) for n in range(1, 21)]), p95([float(n) for n in range(1, 22)])) == (
        1.0,
        19.0,
        20.0,
    )


def test_every_test_the_catalogue_refers_to_exists() -> None:
    for fault in Fault:
        for test in fault.about.elsewhere:
            file, _, name = test.partition("::")
            assert (ROOT / file).exists(), test
            assert not name or f"def {name}(" in (ROOT / file).read_text(), test
    assert "tests/journeys/test_crash.py" in elsewhere()
