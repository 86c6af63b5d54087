import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.app.storage.database import open_database
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.memory.memories import Kind, NewMemory
from gateway.domain.principals import Label
from gateway.flow.secrets.vault import Vault
from gateway.store.memory import memories
from gateway.store.people import principals
from tests.cli.conftest import Supaclaw
from tests.importers.test_markdown import written


@pytest.fixture(autouse=True)
def _somebody_owns_it(dsn: str, monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> None:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    supaclaw("owner", "set", "telegram", "1")


def texts(supaclaw: Supaclaw, *more: str) -> list[str]:
    listed: Any = supaclaw("memories", "list", "--json", *more).json
    return [row["text"] for row in listed]


def test_remember_says_what_it_stored_and_the_same_again_is_seen_once_more(supaclaw: Supaclaw) -> None:
    first = supaclaw(
        "remember", "Prefers TypeScript", "--category", "preference", "--importance", "0.9", "--tags", "a, B"
    )
    again = supaclaw("remember", "prefers  typescript", "--json")
    plain = supaclaw("remember", "The bike is red")

    id = first.out.split()[2]
    assert first.out == f"Stored memory {id} [preference] (importance: 0.9)\n"
    assert again.json == {"id": int(id), "new": False, "seen_count": 2}
    assert plain.out.endswith(" [context] (importance: 0.5)\n")
    shown: Any = supaclaw("memories", "show", id, "--json").json
    assert (shown["tags"], shown["trust"], shown["origin"]) == (["a", "b"], "owner", "user")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("remember", " "), "must not be empty"),
        (("remember", "x", "--category", "gossip"), "'gossip' is not one of"),
        (("remember", "x", "--importance", "2"), "must be at most 1"),
        (("remember", "x" * 5000), "A memory has at most 4,000 characters"),
        (("memories", "show", "99"), "There is no memory 99"),
        (("memories", "forget", "99"), "There is no memory 99"),
        (("memories", "edit", "99", "--text", "y"), "There is no memory 99"),
        (("memories", "edit", "99"), "say what to change"),
        (("search", " "), "must not be empty"),
        (("search", "x", "--types", "page"), "--types takes turn, memory, summary, file"),
        (("search", "x", "--since", "May"), '"May" is not a date or time'),
        (("search", "x", "--scope", "current"), "a terminal has no conversation"),
    ],
)
def test_what_nobody_could_mean_is_refused(supaclaw: Supaclaw, arguments: tuple[str, ...], why: str) -> None:
    done = supaclaw(*arguments)

    assert done.code != 0
    assert why in done.err


def test_a_memory_is_changed_pinned_forgotten_and_remembered_again(supaclaw: Supaclaw) -> None:
    id = supaclaw("remember", "Anna is 41", "--category", "person", "--tags", "family").out.split()[2]
    supaclaw("remember", "The bike is red")

    assert supaclaw("memories", "edit", id, "--text", "Anna is 42", "--importance", "1").out == (
        f"changed: {id} [person] Anna is 42 (importance: 1)\n"
    )
    assert texts(supaclaw, "--category", "person") == texts(supaclaw, "--tags", "family") == ["Anna is 42"]
    assert supaclaw("memories", "pin", id).out.startswith(f"pinned: {id} ")
    assert [row for row in supaclaw("memories", "list").out.splitlines() if "yes" in row and "Anna is 42" in row]
    assert "--undo restores it\n" in supaclaw("memories", "forget", id).out
    assert texts(supaclaw) == ["The bike is red"]
    assert supaclaw("memories", "forget", id, "--undo").out.startswith(f"remembered again: {id} ")
    assert texts(supaclaw) == ["The bike is red", "Anna is 42"]
    exported = [json.loads(line) for line in supaclaw("memories", "export").out.splitlines()]
    assert [(row["text"], row["pinned"], row["tags"]) for row in exported] == [
        ("Anna is 42", True, ["family"]),
        ("The bike is red", False, []),
    ]


def test_show_tells_the_file_and_line_that_a_memory_was_imported_from(supaclaw: Supaclaw, place: Path) -> None:
    supaclaw("import", "memory-md", str(written(place, "MEMORY.md", "# Me\n\n- Likes tea\n")))
    [row] = supaclaw("memories", "list", "--json").json

    shown = supaclaw("memories", "show", str(row["id"]))

    assert shown.out.startswith("Likes tea\n\nkind: context\n")
    assert "trust: known\nfrom: import:memory-md\n" in shown.out
    assert "imported: from MEMORY.md:3 (memory-md), " in shown.out
    assert (row["origin"], row["agent"]) == ("import:memory-md", "default")


def test_a_stored_secret_is_remembered_imported_and_changed_by_its_name(supaclaw: Supaclaw, place: Path) -> None:
    store_secret("WEATHER_KEY", "quite-secret-4711")
    (place / "MEMORY.md").write_text("# Notes\n\n- The key is quite-secret-4711.\n")

    supaclaw("remember", "The weather's key: quite-secret-4711", "--tags", "quite-secret-4711")
    plain = supaclaw("remember", "The bike is red").out.split()[2]
    supaclaw("memories", "edit", plain, "--text", "The bike's lock: quite-secret-4711")
    assert supaclaw("import", "memory-md", str(place / "MEMORY.md")).out.startswith("Imported: 1 ")

    rows = supaclaw("memories", "export").out
    assert "quite-secret-4711" not in rows
    assert rows.count("${secret:WEATHER_KEY}") == 3


def test_more_than_the_memory_goes_only_after_a_yes(supaclaw: Supaclaw) -> None:
    id = supaclaw("remember", "The alarm code is 4711-22").out.split()[2]
    asyncio.run(summarised("Told the code of the alarm: 4711-22"))

    asked = supaclaw("memories", "forget", id)
    assert asked.code != 0
    assert "1 rows that state it would go, too; add --yes" in asked.err
    assert len(texts(supaclaw)) == 2
    done = supaclaw("memories", "forget", id, "--yes")
    assert "With it, 1 that state it:\n- [summary] Told the code" in done.out
    assert f"`supaclaw memories forget {id} --erase` removes it there, too" in done.out
    assert texts(supaclaw) == []


async def summarised(text: str) -> None:
    environment = Environment.read(os.environ)
    opened = open_database(environment, load_early(environment, os.environ))
    async with opened as database, database.transaction() as tx:
        owner = await principals.owner(tx)
        assert owner is not None
        await memories.add(tx, owner.id, NewMemory(text, label=Label.OWNER, kind=Kind.SUMMARY))


def store_secret(name: str, value: str) -> None:
    async def store() -> None:
        environment = Environment.read(os.environ)
        async with open_database(environment, load_early(environment, os.environ)) as database:
            async with database.connection() as conn:
                owner = await principals.owner(conn)
            assert owner is not None
            await Vault(database, environment.data, os.environ).put(owner.id, name, value, shared=True)

    asyncio.run(store())
