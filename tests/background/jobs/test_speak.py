"""Answers that are also read aloud: beside the text, once, and never in its place."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.agent.limits import Limits
from gateway.background.jobs import Speech
from gateway.domain.conversation.inbound import Attachment
from gateway.domain.conversation.model import Highest, Reply, Usage
from gateway.llm.errors import ErrorKind, ModelError
from gateway.store.connection.pool import Database
from tests.background.reads import Reads, derived
from tests.flow.path import FakeModel, MessagePath, build, said

NOTE = (Attachment("f1", "voice.ogg", "audio/ogg"),)
ANSWER = "**Buy** [tea](https://tea.example), see https://tea.example/green\n\n```sh\nrm -rf\n```"
SPOKEN = "Buy tea, see"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


async def transcribed(*_: object) -> Reply:
    return Reply("Say something.", (), Usage(), "x/whisper", 1)


async def answered(
    database: Database,
    workspace: Path,
    speech: Speech,
    attachments: tuple[Attachment, ...] = (),
    tasks: int = 1,
    limits: Limits | None = None,
) -> MessagePath:
    """The path after an answer, once its `speak` tasks have ended."""
    model = FakeModel(lambda _: said(ANSWER))
    path = await build(
        database,
        workspace,
        model,
        cpu=Reads(derived("audio", "audio/ogg")),
        speech=speech,
        limits=limits,
        hear=transcribed,
    )
    path.channel.files["f1"] = b"OggS"
    path.channel.capabilities = replace(path.channel.capabilities, max_file=1_000_000)
    over = "select from tasks where kind = 'speak' and status in ('completed', 'failed')"
    left = "select from outbox where state in ('pending', 'sending')"
    async with path.working(), asyncio.timeout(60):
        await path.answer(await path.tell("say", attachments=attachments))
        while len(await path.rows(over)) < tasks or await path.rows(left):
            path.signals.tasks.set()
            await asyncio.sleep(0.02)
    return path


def speaking(heard: list[str], sound: bytes | Exception, *, always: bool) -> Speech:
    async def speak(text: str) -> tuple[bytes, Usage]:
        heard.append(text)
        if isinstance(sound, Exception):
            raise sound
        return sound, Usage(3, cost_usd=0.01)

    return Speech(speak, lambda _: Highest(), "openai/tts-1", "always" if always else "voice")


@pytest.mark.parametrize(
    ("sound", "name"),
    [
        (b"OggS\0", "voice-2.ogg"),
        (b"ID3\4", "voice-2.mp3"),
        (b"\xff\xfb\x50", "voice-2.mp3"),
        (b"\xff\xf1\x50", "voice-2.aac"),
        (b"\0\0\0 ftypM4A ", "voice-2.m4a"),
    ],
)
async def test_a_voice_message_is_answered_by_text_and_then_by_voice(
    database: Database, workspace: Path, sound: bytes, name: str
) -> None:
    heard: list[str] = []
    path = await answered(database, workspace, speaking(heard, sound, always=False), NOTE)
    assert heard == [SPOKEN]
    first, second = path.channel.shown
    assert (first.text.startswith(ANSWER), first.file) == (True, None)
    assert second.file is not None
    assert (second.text, second.file.name, (path.workspace / "answers" / name).read_bytes()) == ("", name, sound)
    assert await path.rows("select part, state from outbox order by id") == [(0, "sent"), (1, "sent")]
    assert await path.rows("select name, cost_usd from task_steps where name = 'openai/tts-1'") == [
        ("openai/tts-1", pytest.approx(0.01))
    ]


@pytest.mark.parametrize(("always", "sent"), [(False, 1), (True, 2)])
async def test_other_messages_are_answered_by_voice_only_if_that_is_wanted(
    database: Database, workspace: Path, always: bool, sent: int
) -> None:
    path = await answered(database, workspace, speaking([], b"OggS", always=always), tasks=sent - 1)
    assert len(path.channel.shown) == sent


async def test_a_chat_chooses_for_itself(database: Database, workspace: Path) -> None:
    path = await answered(database, workspace, speaking([], b"OggS", always=False), tasks=0)
    await path.rows("update addresses set voice = 'always' returning id")
    async with path.working(), asyncio.timeout(30):
        await path.ask("say it again")
        while len(path.channel.shown) < 3:
            path.signals.tasks.set()
            await asyncio.sleep(0.02)
    assert path.channel.shown[-1].file is not None


async def test_with_the_budget_used_up_nothing_is_read_aloud(database: Database, workspace: Path) -> None:
    heard: list[str] = []
    speech = speaking(heard, b"OggS", always=True)
    path = await answered(database, workspace, speech, limits=Limits(day_usd=0.001))
    assert (heard, [each.file for each in path.channel.shown]) == ([], [None])


async def test_the_highest_cost_is_reserved_before_the_recording_is_made(database: Database, workspace: Path) -> None:
    reserved: list[tuple[float | None, float]] = []

    async def speak(text: str) -> tuple[bytes, Usage]:
        async with database.connection() as conn:
            usd = await conn.fetchval("select reserved_usd from tasks where kind = 'speak'")
        reserved.append((usd, len(text) / 100))
        return b"OggS\0", Usage(3, cost_usd=0.01)

    speech = Speech(speak, lambda text: Highest(len(text) / 100), "openai/tts-1", "always")
    await answered(database, workspace, speech, limits=Limits(day_usd=9))
    [(usd, highest)] = reserved
    assert usd == highest > 0


@pytest.mark.parametrize("sound", [b"<html>", ModelError(ErrorKind.AUTH, "bad key")])
async def test_without_a_recording_the_text_stands_alone(
    database: Database, workspace: Path, sound: bytes | Exception
) -> None:
    path = await answered(database, workspace, speaking([], sound, always=True))
    assert [(each.text, each.file) for each in path.channel.shown] == [(ANSWER, None)]
    assert [status for (status,) in await path.rows("select status from tasks where kind = 'speak'")] == ["failed"]
