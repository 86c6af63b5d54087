import json
import tarfile

import pytest
from pydantic import JsonValue

from gateway.app.storage.manifest import Manifest, Member, stays_inside
from gateway.domain.errors import OwnerMustAct

WHOLE: dict[str, JsonValue] = {
    "format": 1,
    "program": "9.9.9",
    "schema_number": 1,
    "id": "a1",
    "created": "2026-01-01T00:00:00Z",
    "left_out": [],
    "skipped": 0,
    "tables": [{"name": "meta", "columns": ["key", "value"]}],
    "rows": 3,
    "counters": {},
    "members": [{"name": name, "size": 0, "sha256": ""} for name in ("workspace/d/", "workspace/d/x", "meta")],
}


@pytest.mark.parametrize(
    ("name", "target", "inside"),
    [
        ("workspace/l", "a", True),
        ("workspace/l", "a/b/", True),
        ("workspace/d/l", "../a", True),
        ("workspace/d/l", "..", True),
        ("workspace/l", "..", False),
        ("workspace/d/l", "../..", False),
        ("workspace/l", "/etc/passwd", False),
        ("workspace/l", "a/../b", False),
        ("workspace/l", "", False),
        ("workspace/l", "/", False),
        ("workspace/d/../../l", "a", False),
        ("../l", "a", False),
        ("config.json", "a", False),
        ("principals/1/l", "../2/USER.md", False),
        ("principals/1/d/l", "../USER.md", True),
        ("principals/l", "1", False),
    ],
)
def test_a_link_stays_in_its_own_file_root(name: str, target: str, inside: bool) -> None:
    assert stays_inside(name, target) is inside


def test_it_counts_rows_and_files() -> None:
    manifest = Manifest.model_validate(WHOLE)
    assert str(manifest) == "3 rows and 1 files, saved 2026-01-01 00:00 UTC"
    assert Manifest.read(manifest.model_dump_json().encode()) == manifest


@pytest.mark.parametrize("later", [{"format": 2}, {"schema_number": 999}, {"format": 2, "tables": None}])
def test_one_of_a_later_program_says_to_update(later: dict[str, JsonValue]) -> None:
    raw = json.dumps(WHOLE | later).encode()
    with pytest.raises(OwnerMustAct, match=r"SupaClaw 9\.9\.9, a newer one, wrote this backup: update SupaClaw"):
        Manifest.read(raw)


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b'{"format": "x"}', b"\xff"])
def test_what_is_none_is_one_line(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"^its manifest cannot be read$"):
        Manifest.read(raw)


def test_a_name_need_not_be_utf_8() -> None:
    one, other = (Member.of(tarfile.TarInfo(name), None) for name in ("workspace/\udcff", "workspace/\udcfe"))
    assert one != other
    assert one.name.encode() == b"workspace/\\xff"
