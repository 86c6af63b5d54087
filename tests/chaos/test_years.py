"""A start after years: many journal files, some of them harmed while nobody looked."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.workspace.journal.entries import parse_entries
from tests.chaos.conftest import FULL, Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Ledger
from tests.chaos.people import Telegrammers, crowd
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, until

CHATS, TRIES = (200, 6) if FULL else (6, 1)

Texts = Mapping[Path, list[str]]
Harm = Callable[[Path, random.Random], None]


def edited(file: Path, _chance: random.Random) -> None:
    file.write_bytes(file.read_bytes().replace(b"mk", b"mc"))


def damaged(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(20):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def cut(file: Path, chance: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: chance.randrange(file.stat().st_size)])


def deleted(file: Path, _chance: random.Random) -> None:
    file.unlink()


def said_twice(file: Path, _chance: random.Random) -> None:
    file.write_bytes(file.read_bytes() * 2)


HARMS: tuple[Harm, ...] = (edited, damaged, cut, deleted, said_twice)


@pytest.mark.fault(Fault.YEARS)
async def test_files_harmed_while_it_was_down_are_put_right_however_often_it_is_killed(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    chats = range(OWNER, OWNER + CHATS)
    people = Telegrammers(telegram, chance, chats=chats, tools=0.0, commands=0.0)
    ledger = Ledger(process, telegram)
    process.configure(crowd(telegram, models, chats))
    models.latency_ms = 0
    await process.start()
    for chat in chats:
        people.say(chat)
    assert await ledger.settled(120)
    for number in range(TRIES):
        await process.terminate()
        if number % 2:
            (process.data / "journal" / "checked").unlink()
        before = _texts(process)
        for file in chance.sample(sorted(before), CHATS // 2):
            chance.choice(HARMS)(file, chance)
        await process.start()
        people.say()
        await process.kill()
        people.say()
        await process.start()
        assert await ledger.settled(120)

        async def right(before: Texts = before) -> bool:
            now = _texts(process)
            return all(texts == now.get(file, [])[: len(texts)] for file, texts in before.items())

        await until(right, 120)
    outcome = await ledger.count(people.said)
    wrong = [str(file) for file, texts in _texts(process).items() if len(texts) != len(set(texts))]
    judge(Fault.YEARS, replace(outcome, tries=TRIES, broken=(*outcome.broken, *wrong)))


def _texts(process: GatewayProcess) -> dict[Path, list[str]]:
    """What is said in each file; what is in none of our entries is not."""
    key = (process.data / "keys" / "journal").read_bytes()
    roots = [process.workspace, *(process.data / "principals").glob("*")]
    found = [file for root in roots for file in root.glob("sessions/*/*.md")]
    contents = {file: parse_entries(file.read_bytes(), key) for file in found}
    return {file: [entry.text for entry in held.entries] if held.intact else [] for file, held in contents.items()}
