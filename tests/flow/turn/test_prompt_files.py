"""What a turn is shown of files."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.domain.conversation.transcript import AssistantText, Attached, UserText
from gateway.domain.ids import MessageId
from gateway.flow.turn.loop import MAX_EXCERPT, MAX_EXCERPTS_OF_MESSAGE, MAX_PICTURES, with_files
from gateway.tools import MAX_PICTURE_BYTES
from gateway.workspace.files.tree import Workspace

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def with_text(workspace: Workspace, name: str, text: bytes) -> Attached:
    (workspace.root / f"{name}.txt").write_bytes(text)
    return Attached(MessageId(1), 0, "stored", name, "text/plain", text_path=f"{name}.txt")


def with_picture(workspace: Workspace, name: str, data: bytes) -> Attached:
    (workspace.root / f"{name}.jpg").write_bytes(data)
    return Attached(MessageId(1), 0, "stored", name, "image/png", view_path=f"{name}.jpg")


def asked(id: int, *files: Attached) -> UserText:
    return UserText("look", NOON, "", MessageId(id), files)


async def shown(workspace: Workspace, *entries: UserText, answers: set[int]) -> list[UserText]:
    found = await with_files(entries, workspace, {MessageId(id) for id in answers})
    return [entry for entry in found if isinstance(entry, UserText)]


async def excerpts(workspace: Workspace, *files: Attached) -> list[str]:
    [entry] = await shown(workspace, asked(1, *files), answers=set())
    return [file.excerpt for file in entry.attachments]


async def test_a_short_text_is_shown(workspace: Workspace) -> None:
    assert await excerpts(workspace, with_text(workspace, "a", "grüße\n".encode())) == ["grüße"]


async def test_a_long_one_is_not(workspace: Workspace) -> None:
    just, over = ("ä" * MAX_EXCERPT).encode(), ("ä" * (MAX_EXCERPT + 1)).encode()
    files = [with_text(workspace, "a", just), with_text(workspace, "b", over), with_text(workspace, "c", b"x" * 10**6)]
    assert await excerpts(workspace, *files) == ["ä" * MAX_EXCERPT, "", ""]


async def test_many_short_ones_are_bounded_together(workspace: Workspace) -> None:
    files = [with_text(workspace, str(n), b"x" * MAX_EXCERPT) for n in range(10)]
    told = await excerpts(workspace, *files)
    assert sum(map(len, told)) == MAX_EXCERPTS_OF_MESSAGE
    assert told[-1] == ""


async def test_what_is_gone_or_a_link_is_left_out(workspace: Workspace) -> None:
    gone, link = with_text(workspace, "a", b"x"), with_text(workspace, "b", b"x")
    for name in ("a.txt", "b.txt"):
        (workspace.root / name).unlink()
    (workspace.root / "b.txt").symlink_to("/etc/hostname")
    assert await excerpts(workspace, gone, link) == ["", ""]


async def test_pictures_go_with_what_is_to_be_answered_only(workspace: Workspace) -> None:
    file = with_picture(workspace, "a", b"seen")
    old, new = await shown(workspace, asked(1, file), asked(2, file), answers={2})
    assert [len(entry.images) for entry in (old, new)] == [0, 1]
    assert new.images[0].data == b"seen"


async def test_of_many_pictures_the_newest_are_shown(workspace: Workspace) -> None:
    files = [with_picture(workspace, str(n), str(n).encode()) for n in range(MAX_PICTURES)]
    first, second = await shown(workspace, asked(1, *files), asked(2, *files[:3]), answers={1, 2})
    assert [image.data for image in second.images] == [b"0", b"1", b"2"]
    assert [image.data for image in first.images] == [b"3", b"4", b"5", b"6", b"7"]


async def test_a_picture_that_is_too_large_is_left_out(workspace: Workspace) -> None:
    files = [
        with_picture(workspace, "a", bytes(MAX_PICTURE_BYTES + 1)),
        with_picture(workspace, "b", bytes(MAX_PICTURE_BYTES)),
    ]
    [entry] = await shown(workspace, asked(1, *files), answers={1})
    assert [len(image.data) for image in entry.images] == [MAX_PICTURE_BYTES]


async def test_what_has_no_files_stays_as_it_is(workspace: Workspace) -> None:
    entries = [UserText("hello", NOON), AssistantText("hi")]
    assert await with_files(entries, workspace, set()) == entries
