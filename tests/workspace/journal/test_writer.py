import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.workspace.journal import writer as writer_module
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter, journal_key
from tests.workspace.journal.entries import AT, arrived, said


def test_it_is_made_once_for_the_gateway_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "journal"
    key = journal_key(path)
    assert len(key) == 32
    assert journal_key(path) == key
    assert (os.stat(path).st_mode & 0o777, os.stat(path.parent).st_mode & 0o777) == (0o600, 0o700)
    assert os.listdir(path.parent) == ["journal"]


def test_whoever_asks_first_all_get_the_same(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "journal"
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: journal_key(path), range(16)))) == 1


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_damaged_one_is_the_owners_to_mend(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    with pytest.raises(OwnerMustAct, match="restore it from a backup"):
        journal_key(path)
    assert path.read_bytes() == content


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def writer(data: Path) -> JournalWriter:
    return JournalWriter(data / "keys" / "journal", data / "journal" / "damaged")


@pytest.fixture
async def place(writer: JournalWriter, root: Path) -> Place:
    return await writer.create(root, AT)


async def texts(writer: JournalWriter, place: Place) -> list[str]:
    return [entry.text for entry in (await writer.read(place)).entries]


async def test_what_is_appended_is_read_again_and_verified(writer: JournalWriter, place: Place) -> None:
    await writer.append(place, [arrived("one"), said("two")])
    held = await writer.read(place)
    assert held.intact
    assert [entry.text for entry in held.entries] == ["one", "two"]


async def test_appends_keep_the_order_they_were_asked_for(writer: JournalWriter, place: Place) -> None:
    await asyncio.gather(*(writer.append(place, [said(str(n))]) for n in range(100)))
    assert await texts(writer, place) == [str(n) for n in range(100)]


async def test_a_missing_file_is_made_only_when_told(writer: JournalWriter, root: Path) -> None:
    place = Place(root, "sessions/2026-03-01/01-01-01.md")
    with pytest.raises(FileNotFoundError):
        await writer.append(place, [said("x")])
    assert await texts(writer, place) == []
    await writer.append(place, [said("x")], create=True)
    assert await texts(writer, place) == ["x"]


async def test_a_file_that_is_put_right_holds_the_rows_and_what_they_lack(writer: JournalWriter, place: Place) -> None:
    copied, waiting, stored = said("copied"), arrived("waiting"), arrived("stored", id="m2")
    await writer.append(place, [waiting, copied, stored, said("deleted since"), copied])
    assert (await writer.put_right(place, [copied, said("new")], {stored.id}))[0] == {waiting.id}
    assert await texts(writer, place) == ["copied", "new", "waiting"]
    assert (await writer.read(place)).intact


async def test_where_only_the_end_is_missing_it_is_added(writer: JournalWriter, place: Place) -> None:
    first, more = arrived("first"), said("more")
    await writer.append(place, [first])
    inode = os.stat(place.root / place.path).st_ino
    for _ in range(2):
        assert (await writer.put_right(place, [replace(first, kind="user", inbound=None), more], set()))[0] == set()
        assert (await writer.read(place)).entries == (first, more)
        assert os.stat(place.root / place.path).st_ino == inode


async def test_an_arrival_stays_as_it_arrived_unless_its_row_says_otherwise(
    writer: JournalWriter, place: Place
) -> None:
    same, edited = arrived("same"), arrived("before", id="m2")
    await writer.append(place, [same, edited])
    rows = [replace(same, kind="user", inbound=None), replace(edited, kind="user", inbound=None, text="after")]
    await writer.put_right(place, rows, set())
    assert (await writer.read(place)).entries == (same, rows[1])


async def test_a_damaged_original_is_kept_aside_once(writer: JournalWriter, place: Place, data: Path) -> None:
    await writer.append(place, [said("one")])
    whole = (place.root / place.path).read_bytes()
    for _ in range(2):
        (place.root / place.path).write_bytes(whole[:-5])
        await writer.put_right(place, [said("two")], set())
    [kept] = (data / "journal" / "damaged").iterdir()
    assert kept.read_bytes() == whole[:-5]
    assert kept.name.startswith("workspace-sessions-2026-03-01-12-30-15-")
    assert os.stat(kept).st_mode & 0o777 == 0o600


async def test_the_newest_damaged_originals_are_kept(
    writer: JournalWriter, place: Place, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "KEPT", 2)
    for number in range(4):
        (place.root / place.path).write_text(f"garbage {number}")
        await writer.put_right(place, [], set())
    kept = sorted(path.read_text() for path in (data / "journal" / "damaged").iterdir())
    assert kept == ["garbage 2", "garbage 3"]


async def test_a_file_is_removed_only_when_all_that_arrived_is_stored(writer: JournalWriter, place: Place) -> None:
    stored, waiting = arrived("stored"), arrived("waiting", id="m2")
    await writer.append(place, [stored, said("copied"), waiting])
    assert not await writer.remove(place, {stored.id})
    assert len(await texts(writer, place)) == 3
    for _ in range(2):
        assert await writer.remove(place, {stored.id, waiting.id})
        assert not (place.root / place.path).exists()


async def test_a_burst_is_given_one_second_after_another(writer: JournalWriter, root: Path) -> None:
    given = [(await writer.create(root, AT)).path for _ in range(1000)]
    assert given[0] == "sessions/2026-03-01/12-30-15.md"
    assert given[-1] == "sessions/2026-03-01/12-46-54.md"
    assert len(set(given)) == 1000
    old = await writer.create(root, AT - timedelta(days=30))
    assert old.path == "sessions/2026-01-30/12-30-15.md"


async def test_a_damaged_key_is_the_owners_to_mend(writer: JournalWriter, place: Place, data: Path) -> None:
    (data / "keys").mkdir(parents=True)
    (data / "keys" / "journal").write_bytes(b"short")
    with pytest.raises(OwnerMustAct):
        await writer.append(place, [said()])
