"""Files from outside, each content once."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.flow.files.uploads import UploadRefused
from gateway.store.files.files import FileRow
from tests.flow.path import MEMBER, MessagePath


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 1000):
        yield data[start : start + 1000]


async def keep(
    path: MessagePath, data: bytes, name: str = "a.txt", mime: str = "text/plain", who: PrincipalId | None = None
) -> FileRow:
    owner = who or path.people.owner.id
    return await path.uploads.keep(owner, name, mime, pieces(data), origin="web")


async def test_the_row_says_what_is_on_disk(path: MessagePath) -> None:
    row = await keep(path, b"green", "tea.txt")
    assert (path.workspace / row.path).read_bytes() == b"green"
    assert (row.mime, row.size, row.origin, row.derived_at) == ("text/plain", 5, "web", None)


async def test_what_is_in_a_file_may_be_anybodys_whoever_sent_it(path: MessagePath) -> None:
    assert (await keep(path, b"green")).label is Label.UNTRUSTED


async def test_the_same_content_is_the_same_file(path: MessagePath) -> None:
    first = await keep(path, b"green", "a.txt")
    assert await keep(path, b"green", "b.txt") == first
    assert (await keep(path, b"grey", "b.txt")).id != first.id


async def test_at_the_same_time_too(path: MessagePath) -> None:
    rows = await asyncio.gather(*(keep(path, b"green", f"{n}.txt") for n in range(20)))
    assert len({row.id for row in rows}) == 1
    assert len([file for file in (path.workspace / "uploads").rglob("*") if file.is_file()]) == 1


async def test_a_file_that_was_changed_since_is_stored_again(path: MessagePath) -> None:
    first = await keep(path, b"green")
    (path.workspace / first.path).write_bytes(b"black")
    again = await keep(path, b"green")
    assert again.path != first.path
    assert (path.workspace / again.path).read_bytes() == b"green"


async def test_a_file_that_is_gone_is_stored_again_and_read_again(path: MessagePath) -> None:
    first = await keep(path, b"green")
    (path.workspace / first.path).unlink()
    again = await keep(path, b"green")
    assert (again.id, again.path) == (first.id, first.path)
    assert (path.workspace / again.path).read_bytes() == b"green"


async def test_what_the_agent_wrote_itself_is_no_upload(path: MessagePath) -> None:
    await path.rows(
        """insert into files (principal_id, path, mime, size, sha256) select id, 'notes/a.md', 'text/plain', 5,
           encode(sha256('green'), 'hex') from principals returning id"""
    )
    (path.workspace / "notes").mkdir()
    (path.workspace / "notes/a.md").write_bytes(b"green")
    assert (await keep(path, b"green")).path.startswith("uploads/")


async def test_each_principal_has_its_own(path: MessagePath) -> None:
    await path.tell("hello", chat=MEMBER, sender=MEMBER)
    [(member,)] = await path.rows("select id from principals where role = 'member'")
    first, second = await keep(path, b"green"), await keep(path, b"green", who=member)
    assert first.id != second.id
    assert (path.workspace.parent / "principals" / str(member) / second.path).read_bytes() == b"green"


async def test_what_is_too_large_names_the_limit(path: MessagePath) -> None:
    with pytest.raises(UploadRefused, match=r"too large: files of up to 1 MB are taken \(limits.file_mb\)"):
        await keep(path, bytes(1024**2 + 1))
    assert await path.rows("select count(*) from files") == [(0,)]


async def test_a_workspace_that_cannot_be_written_refuses_in_words(path: MessagePath) -> None:
    (path.workspace / "uploads").write_text("in the way")
    with pytest.raises(UploadRefused, match="is a file or a link"):
        await keep(path, b"green")


async def test_a_hostile_name_stays_within_the_uploads(path: MessagePath) -> None:
    for number, name in enumerate(("../../x", "/etc/passwd", "a\x00b", "x" * 300, ".", "sub/../../y")):
        row = await keep(path, str(number).encode(), name)
        assert (path.workspace / row.path).resolve().is_relative_to((path.workspace / "uploads").resolve())
        assert row.path.count("/") == 2


async def test_nothing_is_stored_for_nobody(path: MessagePath) -> None:
    with pytest.raises(Exception, match="principal"):
        await keep(path, b"green", who=PrincipalId(uuid4()))
