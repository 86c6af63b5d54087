import asyncio
import json
import stat
from pathlib import Path

import pytest

from gateway.domain.principals import Role
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from tests.cli.conftest import Supaclaw
from tests.cli.test_memories import store_secret
from tests.cli.test_sessions import talk


@pytest.fixture
def workspace(dsn: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The owner's, who talked; a run and a member's chat are there as well."""
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)

    async def said() -> None:
        async with await Database.connect(dsn) as database, database.transaction() as tx:
            owner = await principals.add(tx, Role.OWNER, "Ada", [])
            member = await principals.ensure_member(tx, "Bo", "telegram:7")
            await talk(tx, owner, "Water the plants", unattended=True)
            await talk(tx, member, "Bo's own words")
            await talk(tx, owner, "Plan a trip, key quite-secret-words", "Gladly.")
            await talk(tx, owner, "𠀀" * 60)

    asyncio.run(said())
    root = place / "data" / "workspace"
    (root / ".agents" / "skills" / "tea").mkdir(parents=True)
    return root


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_makes_an_agent_its_owners_is_written_without_secrets(
    supaclaw: Supaclaw, workspace: Path, place: Path
) -> None:
    (workspace / "AGENTS.md").write_text("Be kind. quite-secret-words\n")
    (workspace / ".agents" / "SOUL.md").write_text("Calm.\n")
    tea = workspace / ".agents" / "skills" / "tea"
    (tea / "SKILL.md").write_text("Steep.\n")
    (tea / "cup.bin").write_bytes(b"\xff\x00")
    (tea / "link").symlink_to("/etc/hostname")
    supaclaw("remember", "Likes tea")
    store_secret("KEY", "quite-secret-words")

    done = supaclaw("export", "mine")

    files = contents(place / "mine")
    assert done.out == "mine: 2 persona files, 2 files of skills, 1 memories, 3 transcripts\n"
    assert files["AGENTS.md"] == b"Be kind. ${secret:KEY}\n"
    assert files["SOUL.md"] == b"Calm.\n"
    assert files["skills/tea/cup.bin"] == b"\xff\x00"
    assert [json.loads(line)["text"] for line in files["memories.jsonl"].splitlines()] == ["Likes tea"]
    assert "skills/tea/link" not in files
    assert not [name for name, data in files.items() if b"quite-secret-words" in data or b"Bo's own" in data]
    assert not [name for name in files if "secret-words" in name]
    [name] = [name for name in files if "plan-a-trip" in name and name.endswith(".jsonl")]
    about, *entries = map(json.loads, files[name].splitlines())
    assert (about["trust"], [entry["text"] for entry in entries]) == (
        "owner",
        ["Plan a trip, key ${secret:KEY}", "Gladly."],
    )
    assert b"Gladly." in files[name.replace(".jsonl", ".md")]
    private = [place / "mine", *(path for path in (place / "mine").rglob("*") if path.is_file())]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in private} == {0}


def test_a_folder_that_exists_is_left_as_it_is(supaclaw: Supaclaw, workspace: Path, place: Path) -> None:
    (place / "mine").mkdir()

    done = supaclaw("export", "mine")

    assert (done.code, done.err) == (1, "supaclaw: mine already exists; name a folder that does not\n")
    assert contents(place / "mine") == {}
    assert workspace.exists()


def test_an_export_that_fails_leaves_nothing(supaclaw: Supaclaw, workspace: Path, place: Path) -> None:
    (workspace / "AGENTS.md").symlink_to("/etc/hostname")

    done = supaclaw("export", "mine")

    assert done.code == 1
    assert "AGENTS.md can't be exported" in done.err
    assert not [path.name for path in place.iterdir() if "mine" in path.name]
    assert "cannot be written" in supaclaw("export", "no/such/mine").err
