from pathlib import Path

import pytest

from channels.slack.kept import Kept, put_newest
from tests.fakes.log import Log


def kept(path: Path, log: Log | None = None) -> Kept:
    found = Kept(path, log or Log())
    found.load()
    return found


def test_what_is_kept_outlives_a_restart_and_what_is_dropped_does_not(tmp_path: Path) -> None:
    first = kept(tmp_path / "new" / "kept.json")
    first.put("a", "1")
    first.put("b", "2")
    first.drop("a")
    second = kept(tmp_path / "new" / "kept.json")
    assert (second.get("a"), second.get("b")) == (None, "2")


def test_the_newest_are_kept() -> None:
    entries: dict[str, str] = {}
    for name, value in [("a", "1"), ("b", "1"), ("c", "1"), ("a", "2"), ("d", "1")]:
        put_newest(entries, name, value, 3)
    assert entries == {"c": "1", "a": "2", "d": "1"}


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_a_broken_file_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(content)
    found = kept(path)
    found.put("a", "1")
    assert kept(path).get("a") == "1"


def test_a_place_that_cannot_be_written_is_reported_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = Log()
    found = kept(tmp_path / "file" / "kept.json", log)
    found.put("a", "1")
    assert found.get("a") == "1"
    assert log.named("slack.not_kept")
