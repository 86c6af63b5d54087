import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter
from tests.workspace.journal.entries import AT, arrived, said


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
    return [entry.text for entry in (await writer.read(place)).content.entries]


async def test_what_is_appended_is_read_again_and_verified(writer: JournalWriter, place: Place) -> None:
    await writer.append(place, [arrived("one"), said("two")])
    held = await writer.read(place)
    assert held.content.intact
    assert [entry.text for entry in held.content.entries] == ["one", "two"]
    assert held.size == os.stat(place.root / place.path).st_size


async def test_appends_keep_the_order_they_were_asked_for(writer: JournalWriter, place: Place) -> None:
    await asyncio.gather(*(writer.append(place, [said(str(n))]) for n in range(100)))
    assert await texts(writer, place) == [str(n) for n in range(100)]


async def test_a_missing_file_is_made_only_when_told(writer: JournalWriter, root: Path) -> None:
    place = Place(root, "sessions/2026-03-01/01-01-01.md")
    with pytest.raises(FileNotFoundError):
        await writer.append(place, [said("x")])
    assert not (await writer.read(place)).content.intact
    await writer.append(place, [said("x")], create=True)
    assert await texts(writer, place) == ["x"]


async def test_rewriting_takes_the_rows_and_carries_over_what_they_lack(writer: JournalWriter, place: Place) -> None:
    copied, waiting, stray = said("copied"), arrived("waiting"), arrived("stray", id="m2")
    await writer.append(place, [waiting, copied, stray, said("deleted since")])
    await writer.rewrite(place, [copied, said("new")], {stray.id})
    assert await texts(writer, place) == ["copied", "new", "waiting"]
    assert (await writer.read(place)).content.intact


async def test_an_arrival_stays_as_it_arrived_unless_its_row_says_otherwise(
    writer: JournalWriter, place: Place
) -> None:
    same, edited = arrived("same"), arrived("before", id="m2")
    await writer.append(place, [same, edited])
    rows = [replace(same, kind="user", inbound=None), replace(edited, kind="user", inbound=None, text="after")]
    await writer.rewrite(place, rows, set())
    assert (await writer.read(place)).content.entries == (same, rows[1])


async def test_a_damaged_original_is_kept_aside_once(writer: JournalWriter, place: Place, data: Path) -> None:
    await writer.append(place, [said("one")])
    whole = (place.root / place.path).read_bytes()
    for _ in range(2):
        (place.root / place.path).write_bytes(whole[:-5])
        await writer.rewrite(place, [said("one")], set())
    [kept] = (data / "journal" / "damaged").iterdir()
    assert kept.read_bytes() == whole[:-5]
    assert kept.name.startswith("workspace-sessions-2026-03-01-12-30-15-")
    assert os.stat(kept).st_mode & 0o777 == 0o600


async def test_a_copy_leaves_the_original_and_what_is_not_a_row(writer: JournalWriter, place: Place) -> None:
    row = arrived("row")
    await writer.append(place, [row, arrived("not stored", id="m2")])
    target = Place(place.root, "memory/20260301123015.md")
    copied = replace(row, kind="user", inbound=None)
    await writer.copy(place, target, [copied])
    assert (await writer.read(target)).content.entries == (copied,)
    assert await texts(writer, place) == ["row", "not stored"]


async def test_a_damaged_key_is_the_owners_to_mend(writer: JournalWriter, place: Place, data: Path) -> None:
    (data / "keys").mkdir(parents=True)
    (data / "keys" / "journal").write_bytes(b"short")
    with pytest.raises(OwnerMustAct):
        await writer.append(place, [said()])
