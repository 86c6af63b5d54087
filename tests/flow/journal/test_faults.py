"""Chance decides what happens and what fails: nothing acknowledged is lost, and everything is in its file once."""

import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.conversation.inbound import Arrival
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import PrincipalId
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter
from tests.flow.journal.desk import MEMBER, OWNER, Desk, arrival, desk
from tests.flow.outage import AwayAtTimes

STEPS = 80
WRITES = ("put_right", "write", "remove", "append", "create")
HAPPENINGS = {
    "hear": 6, "again": 1, "leave": 2, "back": 2, "answer": 2, "new": 1, "compact": 1, "copy": 3, "die": 1,
    "die_copying": 1, "die_storing": 1, "damage": 1,
}  # fmt: skip


class Crash(BaseException):
    """The end of the process."""


class Chance:
    """A gateway to which these things happen; `kept` are the platform ids of what was acknowledged."""

    def __init__(self, here: Desk, away: AwayAtTimes, seed: int) -> None:
        self.here = here
        self.away = away
        self.random = random.Random(seed)
        self.kept: set[str] = set()
        self.spool: list[tuple[Arrival, Place]] = []
        self.count = 0

    async def step(self) -> None:
        [name] = self.random.choices(list(HAPPENINGS), list(HAPPENINGS.values()))
        try:
            await getattr(self, name)()
        except TryAgainLater:
            assert self.away.away

    def where(self) -> dict[str, str]:
        chat, thread = self.random.choice([(OWNER, ""), (OWNER, "t"), (MEMBER, "")])
        return {"chat": chat, "thread": thread}

    async def session(self, at: dict[str, str]) -> Any:
        rows = await self.here.rows("select session_id from addresses where chat = $1 and thread = $2", *at.values())
        return rows[0][0] if rows else None

    async def hear(self) -> None:
        self.count += 1
        arrived = arrival(f"text {self.count}", id=f"p{self.count}", **self.where())
        place = await self.here.write(arrived)
        if not self.away.away and not self.spool:
            await self.here.store(arrived, place)
        elif place is not None:
            await self.here.journal.sync(place)
            self.spool.append((arrived, place))
        else:
            return
        self.kept.add(arrived.inbound.platform_id)

    async def again(self) -> None:
        rows = await self.here.rows("select platform_id, chat, entry_id from inbox order by id")
        if rows and not self.spool:
            id, chat, entry = self.random.choice(rows)
            same = self.random.random() < 0.5
            await self.here.take(arrival("again", id=id, chat=chat, entry=entry if same else None))

    async def die_storing(self) -> None:
        if not self.away.away:
            self.count += 1
            await self.here.write(arrival(f"text {self.count}", id=f"p{self.count}", **self.where()))
            await self.die()

    async def leave(self) -> None:
        self.away.away = True

    async def back(self) -> None:
        """The copyist may be at work before what waits is stored, and the process may end in between."""
        self.away.away = False
        if self.random.random() < 0.5:
            await self.copy()
        if self.random.random() < 0.5:
            await self.die()
        while self.spool:
            await self.here.store(*self.spool[0])
            self.spool.pop(0)

    async def answer(self) -> None:
        if session := await self.session(self.where()):
            await self.here.answer(session, "an answer")

    async def compact(self) -> None:
        if session := await self.session(self.where()):
            await self.here.compact(session, "a summary")

    async def new(self) -> None:
        at = {"chat": self.random.choice([OWNER, MEMBER]), "thread": ""}
        if await self.session(at):
            await self.here.new(chat=at["chat"])

    async def copy(self) -> None:
        await self.here.journal.catch_up()

    async def die(self) -> None:
        if self.away.away:
            return
        self.spool.clear()
        self.here = await desk(self.away, self.here.workspace.parent)
        await self.here.started()
        if self.random.random() < 0.5:
            await self.here.journal.check.put_right()

    async def die_copying(self) -> None:
        name, before = self.random.choice(WRITES), self.random.random() < 0.5
        done = getattr(JournalWriter, name)

        async def crashing(writer: JournalWriter, *arguments: Any, **more: Any) -> None:
            if not before:
                await done(writer, *arguments, **more)
            raise Crash

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(JournalWriter, name, crashing)
            try:
                await self.here.journal.catch_up()
            except Crash:
                pass
            else:
                return
        await self.die()

    async def damage(self) -> None:
        files = sorted(self.here.workspace.parent.rglob("sessions/**/*.md"))
        if not files or self.spool or self.away.away:
            return
        file = self.random.choice(files)
        data = bytearray(file.read_bytes())
        if data and self.random.random() < 0.6:
            data[self.random.randrange(len(data))] ^= 1
            file.write_bytes(data)
        else:
            file.unlink()
        await self.die()

    async def end(self) -> Desk:
        await self.back()
        await self.die()
        for _ in range(3):
            await self.here.journal.catch_up()
        await self.here.settled()
        return self.here


async def check(here: Desk, kept: set[str]) -> None:
    stored = Counter(id for (id,) in await here.rows("select platform_id from messages where kind = 'user'"))
    assert {id: stored[id] for id in kept} == dict.fromkeys(kept, 1)
    rows = await here.rows(
        """select m.entry_id, j.path, j.principal_id from messages m left join journals j on j.id = m.journal_id"""
    )

    def place(path: str, whose: PrincipalId) -> str:
        return os.path.join(here.workspace if here.people.is_owner(whose) else here.root(whose), path)

    expected = {id: place(path, whose) for id, path, whose in rows}
    journals = await here.rows("select path, principal_id, closed_at is null, filed_at is null from journals")
    assert all(opened == unfiled for _, _, opened, unfiled in journals)
    paths = {place(path, whose) for path, whose, _, _ in journals}
    copied = [(entry.id, str(file)) for file in known(here, paths) for entry in here.entries(file)]
    assert Counter(copied) == Counter(expected.items())
    listed = sum(index.read_text().count("\n- [") for index in here.workspace.parent.rglob("INDEX.md"))
    assert listed == sum(not opened for _, _, opened, _ in journals)


def known(here: Desk, paths: set[str]) -> list[Path]:
    """Every file but the damaged ones that no session has: they stay for a person to look at."""
    files = [file for folder in ("sessions", "memory") for file in here.workspace.parent.rglob(f"{folder}/**/*.md")]
    files = [file for file in files if file.name != "INDEX.md"]
    return [file for file in files if here.content(file).intact or str(file) in paths]


@pytest.fixture
async def away(dsn: str) -> AsyncIterator[AwayAtTimes]:
    async with await AwayAtTimes.connect(dsn) as database:
        yield database


@pytest.mark.parametrize("seed", range(8))
async def test_nothing_is_lost_or_doubled_whatever_happens(away: AwayAtTimes, tmp_path: Path, seed: int) -> None:
    chance = Chance(await desk(away, tmp_path), away, seed)
    for _ in range(STEPS):
        await chance.step()
    assert chance.kept
    await check(await chance.end(), chance.kept)
