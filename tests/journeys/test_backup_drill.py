"""A backup under load, put back on another machine: the same answers, the same people, nothing sent twice."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest

from gateway.app.storage.restore import RESTORED
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import FRIEND, OWNER, Ended, GatewayProcess, Json, configured, said, until

pytestmark = pytest.mark.thorough

QUIET = FRIEND
CHATS = range(OWNER + 10, OWNER + 15)
API_SESSIONS = 3
FILES = {"notes/täglich.md": b"milk\n", "picture.bin": bytes(range(256)) * 3000, "deep/er/empty": b""}
SAME = {
    "principals": "select id, role, name, identities from principals order by id",
    "api_tokens": "select id, name, sha256, scopes from api_tokens where kind = 'bearer' order by id",
    "sessions": "select id, principal_id from sessions order by id",
    "addresses": "select id, channel, account, chat, session_id from addresses order by id",
}


async def run(process: GatewayProcess, *arguments: str) -> Ended:
    """A command in the home of a gateway, which need not be running."""
    command = await process.run(*arguments)
    out, err = await asyncio.wait_for(command.communicate(), 60)
    return Ended(command.returncode or 0, (out + err).decode())


@asynccontextmanager
async def a_burst(process: GatewayProcess, telegram: FakeTelegram) -> AsyncIterator[None]:
    """People write on Telegram and programs on /v1 as long as the block lasts."""
    chance = random.Random(7)
    stop = asyncio.Event()

    async def write() -> None:
        number = 100
        while not stop.is_set():
            telegram.say(f"message mk{number}x", chance.choice(CHATS))
            number += 1
            await asyncio.sleep(chance.uniform(0.0, 0.05))

    async def ask() -> None:
        number = 5000
        while not stop.is_set():
            session = f"s{number % API_SESSIONS}"
            asked = await process.complete(f"request mk{number}x", key=f"key-{number}", session=session)
            assert asked.status_code == 200, asked.text
            number += 1

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        group.create_task(ask())
        try:
            yield
        finally:
            stop.set()


async def known(process: GatewayProcess) -> dict[str, list[asyncpg.Record]]:
    return {name: await process.rows(query) for name, query in SAME.items()}


def files_below(root: Path) -> dict[str, bytes]:
    ours = [path for path in root.rglob("*") if path.is_file() and path.relative_to(root).parts[0] not in KEPT_BY_IT]
    return {str(path.relative_to(root)): path.read_bytes() for path in ours}


KEPT_BY_IT = {"sessions", "memory"}
"""What the gateway itself writes there, and goes on writing."""


class Drill:
    """One gateway with its people, another place, and what must be the same in both."""

    def __init__(self, old: GatewayProcess, new: GatewayProcess, telegram: FakeTelegram, models: FakeModels) -> None:
        self.old, self.new, self.telegram, self.models = old, new, telegram, models
        self.archive = old.home.parent / "backup.tar.gz"
        self.config: Json = configured(telegram, models)
        self.config["channels"]["telegram"]["allow"] = [str(chat) for chat in (OWNER, QUIET, *CHATS)]

    async def live(self) -> None:
        """What has been said, made and sent before anything happens."""
        self.old.configure(self.config)
        await self.old.start()
        for name, content in FILES.items():
            path = self.old.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.token = (await self.old.command("token", "create", "laptop", "--scope", "chat")).told.strip()
        self.telegram.say("hello mk1x", QUIET)
        await self.telegram.wait_for(lambda tg: bool(tg.sent))
        self.last = self.telegram.sent[0].text
        self.api = said(await self.old.complete("request mk2x", key="quiet", session="quiet"))

    async def save_under_load(self, *options: str) -> None:
        """Back up while messages come in, answers are written, and Telegram takes none of them."""
        self.models.latency_ms = 80
        async with a_burst(self.old, self.telegram):
            await until(self._everybody_has_spoken)
            self.telegram.hang("sendMessage")
            await until(self._something_is_being_sent)
            done = await run(self.old, "backup", str(self.archive), *options)
        assert done.code == 0, done.told
        self.files = files_below(self.old.workspace)
        self.before = await known(self.old)
        await self.old.kill()
        self.telegram.release()
        await asyncio.sleep(0.2)  # what had left the old gateway arrives
        self.shown = len(self.telegram.sent)

    async def move(self) -> None:
        """Put it back, see what was saved, and start."""
        done = await run(self.new, "restore", str(self.archive))
        assert done.code == 0, done.told
        self.open = await self.new.rows("select id from messages where kind = 'user' and answered_by is null")
        self.doubted = await self.new.rows(
            """select chat, text from outbox o join addresses a on a.id = o.address_id
               where state = 'uncertain' and not notice"""
        )
        await self.new.start()
        await until(self._nothing_is_open)

    async def check(self) -> None:
        assert self.open, "nothing was open: the drill tried nothing"
        assert self.doubted, "nothing was on its way: the drill tried nothing"
        await self._check_transcripts()
        self._check_shown()
        await self._check_the_rest()

    async def _check_transcripts(self) -> None:
        users = await self.new.rows("select text, answered_by from messages where kind = 'user'")
        assert [text for text, n in Counter(row["text"] for row in users).items() if n > 1] == []
        unanswered = await self.new.rows(
            """select m.text from messages m left join messages a on a.id = m.answered_by
               where m.kind = 'user' and (a.id is null or a.kind <> 'assistant')"""
        )
        assert unanswered == []
        holes = await self.new.rows(
            "select session_id from messages group by session_id having max(seq) <> count(*) or min(seq) <> 1"
        )
        assert holes == []
        answers = await self.new.rows("select text from messages where kind = 'assistant' and final")
        assert [text for text, n in Counter(row["text"] for row in answers).items() if n > 1] == []

    def _check_shown(self) -> None:
        shown = Counter((str(sent.chat), sent.text) for sent in self.telegram.sent[self.shown :])
        assert [what for what in shown if what in {(row["chat"], row["text"]) for row in self.doubted}] == []
        assert [what for what, times in shown.items() if times > 1] == []
        told = {chat for chat, text in shown if text == RESTORED}
        assert told == {row["chat"] for row in self.doubted}

    async def _check_the_rest(self) -> None:
        assert await known(self.new) == self.before
        assert files_below(self.new.workspace) == self.files
        self.telegram.say("/last", QUIET)
        await self.telegram.wait_for(lambda tg: tg.sent[-1].chat == QUIET and tg.sent[-1].text == self.last)
        calls = self.models.count
        assert said(await self.new.complete("request mk2x", key="quiet", session="quiet")) == self.api
        assert self.models.count == calls, "it was answered from the transcript"
        async with httpx.AsyncClient(base_url=self.new.url, trust_env=False) as client:
            answer = await client.get("/v1/models", headers={"Authorization": f"Bearer {self.token}"})
        assert answer.status_code == 200

    async def _everybody_has_spoken(self) -> bool:
        [row] = await self.old.rows("select count(*) as n from addresses")
        return bool(row["n"] >= 1 + len(CHATS) + 1 + API_SESSIONS)

    async def _something_is_being_sent(self) -> bool:
        [row] = await self.old.rows("select count(*) as n from outbox where state in ('pending', 'sending')")
        return bool(row["n"] > 2)

    async def _nothing_is_open(self) -> bool:
        [row] = await self.new.rows(
            """select (select count(*) from messages where kind = 'user' and answered_by is null)
                    + (select count(*) from outbox where state in ('pending', 'sending')) as n"""
        )
        return bool(row["n"] == 0) and not self.telegram.pending


@pytest.fixture
async def old(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """The machine that is lost; its Postgres is its own."""
    (tmp_path / "old").mkdir()
    process = GatewayProcess(tmp_path / "old")
    yield process
    await process.close()


async def test_from_an_embedded_to_an_embedded_postgres_with_secrets(
    old: GatewayProcess, tmp_path: Path, telegram: FakeTelegram, models: FakeModels
) -> None:
    (tmp_path / "new").mkdir()
    new = GatewayProcess(tmp_path / "new")
    drill = Drill(old, new, telegram, models)
    try:
        await drill.live()
        await drill.save_under_load("--with-secrets")
        await drill.move()

        await drill.check()
    finally:
        await new.close()


async def test_from_an_embedded_to_an_external_postgres_without_secrets(
    old: GatewayProcess, tmp_path: Path, empty_dsn: str, telegram: FakeTelegram, models: FakeModels
) -> None:
    (tmp_path / "new").mkdir()
    new = GatewayProcess(tmp_path / "new", empty_dsn)
    drill = Drill(old, new, telegram, models)
    new.configure(drill.config)
    try:
        await drill.live()
        await drill.save_under_load()
        await drill.move()

        await drill.check()
        assert telegram.token not in (new.home / "config.restored.json").read_text()
    finally:
        await new.close()


async def test_the_doctor_restores_a_backup_into_a_copy_and_talks_to_it(embedded: GatewayProcess) -> None:
    embedded.configure(configured())
    await embedded.start()
    file = embedded.home / "copy.tar.gz"
    assert (await run(embedded, "backup", "--with-secrets", str(file))).code == 0

    drill = await run(embedded, "doctor", "--restore-drill", str(file))
    assert (drill.code, drill.told) == (0, f"{file} was restored into a copy, which started and answered\n")
    file.write_bytes(file.read_bytes()[:-100])
    damaged = await run(embedded, "doctor", "--restore-drill", str(file))
    assert (damaged.code, "is not a complete SupaClaw backup" in damaged.told) == (1, True)
