from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.domain.channels.channel import Button, Capabilities
from gateway.domain.ids import FileId
from gateway.domain.principals import Label
from gateway.flow.outbound.parts import MAX_CAPTION, TO_BE_CONTINUED, Abridged, abridge, parts
from gateway.store.connection.pool import Database
from gateway.store.delivery.outbox import OutboxPart
from gateway.workspace.files.tree import Workspace
from tests.fakes.channel import FakeChannel
from tests.flow.path import FakeModel, MessagePath, build, said

ONE, TWO = FileId(uuid4()), FileId(uuid4())
YES = Button("Yes", "/yes")


def test_a_short_text_is_one_part() -> None:
    assert parts("hello", 100) == [OutboxPart("hello")]


def test_buttons_are_under_the_end_of_the_text_and_only_its_beginning_is_a_reply() -> None:
    made = parts("a" * 20 + "\n\n" + "b" * 20, 30, files=[ONE], buttons=[YES], reply_to="m7")
    assert made == [OutboxPart("a" * 20, reply_to="m7"), OutboxPart("b" * 20, buttons=(YES,)), OutboxPart("", file=ONE)]


def test_a_short_text_becomes_the_caption_of_the_first_file() -> None:
    assert parts("here", 4096, files=[ONE, TWO], reply_to="m7") == [
        OutboxPart("here", file=ONE, reply_to="m7"),
        OutboxPart("", file=TWO),
    ]


def test_a_text_too_long_for_a_caption_goes_before_its_files() -> None:
    text = "x" * (MAX_CAPTION + 1)
    assert parts(text, 4096, files=[ONE, TWO]) == [OutboxPart(text), OutboxPart("", file=ONE), OutboxPart("", file=TWO)]


def test_a_text_with_buttons_is_no_caption_for_not_every_file_can_have_them() -> None:
    assert parts("really?", 4096, files=[ONE], buttons=[YES]) == [
        OutboxPart("really?", buttons=(YES,)),
        OutboxPart("", file=ONE),
    ]


def test_a_file_needs_no_words() -> None:
    assert parts("", 4096, files=[ONE], reply_to="m7") == [OutboxPart("", file=ONE, reply_to="m7")]


def test_what_no_database_takes_is_left_out() -> None:
    assert parts("a\x00b\ud800", 4096) == [OutboxPart("ab?")]


NOW = datetime(2026, 11, 21, 19, 8, 3, tzinfo=UTC)
LONG = "\n\n".join(f"Paragraph {number}." + " word" * 30 for number in range(60))
FILES = Capabilities(max_text=1500, max_file=20_000)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture
async def path(database: Database, workspace: Path) -> MessagePath:
    model = FakeModel(answer=lambda _: said(LONG))
    return await build(database, workspace, model, channel=FakeChannel(capabilities=FILES))


async def test_the_beginning_says_that_the_whole_is_in_the_file(path: MessagePath) -> None:
    async with path.working():
        assert await path.ask("tell me all") == LONG
        await path.channel.until(lambda texts: len(texts) == 2)
    beginning, file = path.channel.shown
    assert beginning.text.startswith("Paragraph 0. word")
    assert beginning.text.endswith(f"word\n\n{TO_BE_CONTINUED}")
    assert len(beginning.text) <= 1500
    assert file.file is not None
    assert (file.text, file.file.mime) == ("", "text/markdown")
    assert path.channel.taken == [LONG.encode()]
    assert await path.rows("select path, origin from files") == [(f"answers/{file.file.name}", "agent")]


async def test_the_transcript_and_last_have_all_of_it(path: MessagePath) -> None:
    async with path.working():
        await path.ask("tell me all")
        assert await path.ask("/last") == LONG
        texts = await path.channel.until(lambda texts: len(texts) > 8)
    assert " ".join(texts[2:]).split() == LONG.split()


async def test_why_tells_of_the_file(path: MessagePath) -> None:
    async with path.working():
        await path.ask("tell me all")
        await path.channel.until(lambda texts: len(texts) == 2)
        await path.outbound.drain(5)
        assert (await path.ask("/why")).endswith("Part 1: sent as p1\nPart 2 (a file): sent as p2")


class TestDeciding:
    @pytest.mark.parametrize(
        "channel",
        [
            None,
            FakeChannel(capabilities=Capabilities(max_text=1500)),
            FakeChannel(capabilities=Capabilities(max_text=1500, max_file=3000)),
            FakeChannel(capabilities=Capabilities(max_text=2100, max_file=20_000)),
        ],
        ids=["the transcript is read itself", "no files", "too large a file", "five messages are enough"],
    )
    async def test_as_it_is(self, workspace: Path, channel: FakeChannel | None) -> None:
        assert await abridge(LONG, Label.OWNER, channel, Workspace(workspace), NOW) == Abridged(LONG)
        assert files_in(workspace) == []

    async def test_when_the_file_cannot_be_written_it_goes_in_parts(self, workspace: Path) -> None:
        (workspace / "answers").write_text("in the way")
        assert await abridge(LONG, Label.OWNER, FakeChannel(capabilities=FILES), Workspace(workspace), NOW) == Abridged(
            LONG
        )

    async def test_two_answers_of_one_second_keep_out_of_each_others_way(self, workspace: Path) -> None:
        channel, files = FakeChannel(capabilities=FILES), Workspace(workspace)
        for text in (LONG, LONG, LONG + "!"):
            await abridge(text, Label.OWNER, channel, files, NOW)
        first, second = files_in(workspace)
        assert {first.read_text(), second.read_text()} == {LONG, LONG + "!"}
        assert first.name.startswith("answer-2026-11-21-190803-")
