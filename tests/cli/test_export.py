import asyncio
import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.memory.memories import Category, NewMemory
from gateway.domain.principals import Label, Role
from gateway.store.connection.pool import Database
from gateway.store.memory import memories
from gateway.store.people import principals
from gateway.store.transcript import messages
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


MANY = 1_000
FIRST = datetime(2025, 1, 1, tzinfo=UTC)


async def remember_a_life(dsn: str, many: int = MANY) -> None:
    async with await Database.connect(dsn) as database, database.transaction() as tx:
        owner = (await principals.owner(tx)).id  # type: ignore[union-attr]
        talks = [await talk(tx, owner, f"Said {number}", "Noted.") for number in range(10)]
        said = [row.id for session in talks for row in await messages.transcript(tx, session)]
        for number in range(many):
            new = NewMemory(
                f"Fact {number}\n\nand # more",
                list(Category)[number % 7],
                number / MANY,
                ("tag", str(number)),
                pinned=number % 50 == 0,
                label=Label(number % 3),
                agent="nix" if number % 9 == 0 else "default",
                sources=(said[number % 20], said[(number + 7) % 20]),
                event_at=FIRST + timedelta(days=number) if number % 2 else None,
                created_at=FIRST + timedelta(hours=number),
            )
            memory, _ = await memories.add(tx, owner, new)
            if number % 10 == 3:
                await memories.end(tx, memory.id, None, FIRST + timedelta(days=400))


async def forget_everything(dsn: str) -> None:
    async with await Database.connect(dsn) as database, database.transaction() as tx:
        await tx.execute("truncate imports, memories, messages, sessions cascade")


def passport(file: Path) -> list[dict[str, Any]]:
    """The lines without numbers of rows, which every gateway gives anew."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        del line["id"], line["mac"], line["origin"], line["who"], line["session"], line["learned_from"]["import"]
        said = line.pop("learned_from")["messages"]
        line["sources"] = sorted((each["who"], each["at"], each["text"], each["trust"]) for each in said)
    return sorted(lines, key=lambda line: str(line["created_at"]))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "source"), [("openclaw", "openclaw"), ("hermes", "hermes"), ("letta", "all"), ("markdown", "all")]
)
def test_a_passport_and_back_loses_nothing_of_a_thousand_memories(
    supaclaw: Supaclaw, workspace: Path, place: Path, dsn: str, program: str, source: str
) -> None:
    asyncio.run(remember_a_life(dsn))
    (workspace / "SOUL.md").write_text("Calm.\n")

    assert supaclaw("export", "mine", "--to", program).code == 0
    same = supaclaw("import", "all", "mine")
    asyncio.run(forget_everything(dsn))
    back = supaclaw("import", source, "mine")
    again = supaclaw("import", "passport", "mine", "--json").json
    assert supaclaw("export", "again", "--to", "letta").code == 0

    assert "Imported: 0 memories, 0 sessions" in same.out, same.err
    assert back.out.startswith(f"Imported: {MANY} memories"), back.err
    assert isinstance(again, dict)
    assert (again["memories"], again["messages"]) == (0, 0)
    before = passport(place / "mine" / "memories.jsonl")
    assert len(before) == MANY
    assert passport(place / "again" / "memories.jsonl") == before
    [agent] = json.loads((place / "again" / "agent.af").read_text())["agents"]
    assert len(agent["block_ids"]) == 3


@pytest.mark.parametrize(
    ("program", "file", "text"),
    [
        ("openclaw", "MEMORY.md", "# Memory\n\n## Preference\n\n- Likes tea\n"),
        ("hermes", "memories/MEMORY.md", "Likes tea\n"),
        ("markdown", "memories/preference.md", "# Preference\n\n- Likes tea\n"),
    ],
)
def test_other_programs_get_what_holds_and_is_trusted(
    supaclaw: Supaclaw, workspace: Path, place: Path, program: str, file: str, text: str
) -> None:
    assert workspace.exists()
    supaclaw("remember", "Likes tea", "--category", "preference")

    assert supaclaw("export", "mine", "--to", program).code == 0

    assert (place / "mine" / file).read_text() == text
    assert "Imported: 0 memories" in supaclaw("import", "all", "mine").out


def test_trust_comes_back_only_under_this_gateways_seal(
    supaclaw: Supaclaw, workspace: Path, place: Path, dsn: str
) -> None:
    def trust() -> dict[str, int]:
        lines = map(json.loads, supaclaw("memories", "export").out.splitlines())
        found = [line["trust"] for line in lines]
        return {name: found.count(name) for name in set(found)}

    assert workspace.exists()
    asyncio.run(remember_a_life(dsn, 9))
    assert supaclaw("export", "mine").code == 0
    file = place / "mine" / "memories.jsonl"
    (place / "forged").mkdir()
    forged = (
        json.dumps({**json.loads(line), "text": f"Obey {n}"}) for n, line in enumerate(file.read_text().splitlines())
    )
    (place / "forged" / "memories.jsonl").write_text("\n".join(forged))

    asyncio.run(forget_everything(dsn))
    assert supaclaw("import", "passport", "mine").code == 0
    assert trust() == {"owner": 3, "known": 3, "untrusted": 3}
    asyncio.run(forget_everything(dsn))
    assert supaclaw("import", "passport", "forged").code == 0
    assert trust() == {"untrusted": 9}
    (place / "data" / "keys" / "journal").unlink()
    asyncio.run(forget_everything(dsn))
    assert supaclaw("import", "passport", "mine", "--yes").code == 0
    assert trust() == {"known": 6, "untrusted": 3}
