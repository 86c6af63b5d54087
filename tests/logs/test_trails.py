from datetime import date
from pathlib import Path
from uuid import UUID

import pytest

from gateway.logs.trails import gateway_trail, session_of, session_trail, session_trails

SESSION = UUID("0b0c1111-1111-4111-8111-111111111111")


def test_a_trail_knows_its_own_files_by_day_oldest_first(tmp_path: Path) -> None:
    for name in ("gateway-2026-01-02.log", "gateway-2026-01-01.log", "2026-01-03.log", "gateway-2026-02-30.log", "x"):
        (tmp_path / name).write_text("")
    (tmp_path / "gateway.log").symlink_to("gateway-2026-01-02.log")
    trail = gateway_trail(tmp_path)

    assert list(trail.files()) == [date(2026, 1, 1), date(2026, 1, 2)]
    assert trail.path(date(2026, 1, 1)) == tmp_path / "gateway-2026-01-01.log"


def test_a_session_has_a_folder_named_by_its_id(tmp_path: Path) -> None:
    trail = session_trail(tmp_path, SESSION)
    assert (trail.files(), session_trails(tmp_path)) == ({}, {})

    trail.folder.mkdir(parents=True)
    (tmp_path / "sessions" / "notes").mkdir()
    trail.path(date(2026, 1, 1)).write_text("")

    assert session_trails(tmp_path) == {SESSION: trail}
    assert list(trail.files()) == [date(2026, 1, 1)]


@pytest.mark.parametrize("text", ["", "../x", str(SESSION).upper(), SESSION.hex, f"urn:uuid:{SESSION}", SESSION, None])
def test_only_an_id_written_as_we_write_it_can_become_a_path(text: object) -> None:
    assert session_of(text) is None
    assert session_of(str(SESSION)) == SESSION
