import os
from pathlib import Path

import pytest

from gateway.flow.journal.copies import VerifiedFiles
from gateway.store.transcript.journals import CopyMark
from gateway.workspace.journal.files import MAX_BYTES, Place, Version

ROWS = CopyMark(70, 30)
VERSION: Version = (1, 2, 3, 4)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal" / "checked"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "sessions/2026-03-01/12-30-15.md")


def loaded(file: Path, newest: CopyMark = ROWS) -> VerifiedFiles:
    checked = VerifiedFiles(file)
    checked.load(newest)
    return checked


@pytest.fixture
def kept(file: Path, place: Place) -> VerifiedFiles:
    """On disk, with one file that was right."""
    checked = loaded(file)
    checked.learn(place, VERSION)
    checked.save(checked.state())
    return checked


def test_a_file_is_known_until_it_is_another_version(kept: VerifiedFiles, file: Path, place: Place) -> None:
    assert loaded(file).unknown([(place, VERSION)]) == []
    for changed in range(4):
        other = (*VERSION[:changed], 9, *VERSION[changed + 1 :])
        assert loaded(file).unknown([(place, other)]) == [(place, other)]


def test_what_nobody_vouches_for_any_more_is_unknown(kept: VerifiedFiles, place: Place) -> None:
    kept.learn(place, None)
    assert kept.unknown([(place, VERSION)]) == [(place, VERSION)]


def test_files_that_are_gone_are_forgotten(kept: VerifiedFiles, place: Place) -> None:
    kept.unknown([])
    assert kept.unknown([(place, VERSION)]) == [(place, VERSION)]


def test_another_file_with_the_same_version_is_not_known(kept: VerifiedFiles, tmp_path: Path) -> None:
    other = Place(tmp_path, "sessions/2026-03-01/12-30-16.md")
    assert kept.unknown([(other, VERSION)]) == [(other, VERSION)]


def test_damage_of_any_kind_leaves_nothing_known(kept: VerifiedFiles, file: Path, place: Place) -> None:
    whole = file.read_bytes()
    newest = CopyMark(99, 99)
    for at in range(len(whole)):
        for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            file.write_bytes(data)
            checked = loaded(file, newest)
            assert checked.rows == newest
            assert checked.unknown([(place, VERSION)]) == [(place, VERSION)]


def test_a_file_that_is_larger_than_any_leaves_nothing_known(kept: VerifiedFiles, file: Path, place: Place) -> None:
    os.truncate(file, MAX_BYTES + 1)
    assert loaded(file).unknown([(place, VERSION)]) == [(place, VERSION)]


@pytest.mark.parametrize("newest", [CopyMark(69, 30), CopyMark(70, 29)])
def test_nor_is_anything_of_a_database_that_had_more_rows(
    kept: VerifiedFiles, file: Path, place: Place, newest: CopyMark
) -> None:
    checked = loaded(file, newest)
    assert checked.rows == newest
    assert checked.unknown([(place, VERSION)]) == [(place, VERSION)]


def test_a_disk_that_refuses_it_stops_nothing(file: Path) -> None:
    file.parent.write_text("in the way")
    checked = loaded(file)
    checked.save(checked.state())
    assert loaded(file).rows == ROWS
