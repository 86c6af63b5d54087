import asyncio
import json
from pathlib import Path

import pytest

from gateway.store.connection.pool import Database
from tests.cli.conftest import Supaclaw
from tests.importers.test_chats import chatgpt, said
from tests.importers.test_storing import workspace


@pytest.fixture(autouse=True)
def _somebody_owns_it(dsn: str, monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> None:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    supaclaw("owner", "set", "telegram", "1")


def test_an_import_says_what_it_came_to_and_again_that_nothing_is_new(supaclaw: Supaclaw, place: Path) -> None:
    workspace(place)

    dry = supaclaw("import", "openclaw", str(place), "--dry-run")
    done = supaclaw("import", "all", str(place))
    again = supaclaw("import", "all", str(place), "--json")

    assert (dry.code, dry.err) == (0, "")
    counts = "2 memories, 1 session, 2 tasks, 1 learning (2 messages)\nLeft out: 1 done\n"
    assert dry.out == f"Would import: {counts}"
    assert done.out == f"Imported: {counts}"
    assert again.json == {
        "memories": 0,
        "sessions": 0,
        "messages": 0,
        "tasks": 0,
        "learnings": 0,
        "proposals": 0,
        "known": 7,
        "passed": {"done": 1},
        "damaged": [],
        "more_damaged": 0,
        "dry_run": False,
    }


def test_times_of_a_log_are_the_owners(supaclaw: Supaclaw, place: Path, dsn: str) -> None:
    (place / "config.json").write_text(json.dumps({"owner": {"timezone": "America/New_York"}}))
    assert supaclaw("import", "daily-logs", str(workspace(place) / "memory")).code == 0

    async def first_said_at() -> str:
        async with await Database.connect(dsn, size=1) as database, database.connection() as conn:
            return str(await conn.fetchval("select min(created_at at time zone 'UTC') from messages"))

    assert asyncio.run(first_said_at()) == "2026-03-01 14:00:01"


def test_what_is_damaged_is_told_with_its_place_and_the_exit_code(supaclaw: Supaclaw, place: Path) -> None:
    (place / "conversations.json").write_text("[" + json.dumps(chatgpt("c", said("user", "kept"))) + ",\n{broken}]")

    done = supaclaw("import", "chatgpt", "conversations.json")

    assert done.code == 1
    assert done.out == "Imported: 0 memories, 1 session, 0 tasks, 0 learnings (1 message)\n"
    assert done.err == "supaclaw: conversations.json:2: item 2 is not valid JSON; skipped\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("nothing", "."), 'there is no source "nothing"; choose one of chatgpt, claude, daily-logs'),
        (("chatgpt", "gone.json"), "gone.json does not exist; name the file or folder to import"),
        (("chatgpt", "empty.json"), "nothing was found in empty.json; expected ChatGPT's conversations.json"),
        (("all", "."), "nothing to import was found in ."),
        (("memory-md", "empty.json", "--agent", " "), "the agent needs a name"),
        (("whatsapp", "empty.json", "--own"), "anybody in a chat can forge the lines of whatsapp; import it without"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_a_line(
    supaclaw: Supaclaw, place: Path, arguments: tuple[str, ...], why: str
) -> None:
    (place / "empty.json").write_text("[]")

    done = supaclaw("import", *arguments)

    assert done.code != 0
    assert done.err.startswith(f"supaclaw: {why}")
    assert done.err.count("\n") == 1


def test_a_large_import_with_a_paid_model_asks_first(
    supaclaw: Supaclaw, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.storage.imports.FREE_ROWS", 1)
    (place / "config.json").write_text('{"models": {"embedding": "litellm:openai/text-embedding-3-small"}}')
    talk = chatgpt("a", said("user", "one " * 2000), said("assistant", "two"))
    (place / "conversations.json").write_text(json.dumps([talk]))

    refused = supaclaw("import", "chatgpt", "conversations.json")
    dry = supaclaw("import", "chatgpt", "conversations.json", "--dry-run")
    done = supaclaw("import", "chatgpt", "conversations.json", "--yes")

    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("supaclaw: 2 pieces of memory, about 2,")
    assert "tokens ($0.00), would be embedded by litellm:openai/text-embedding-3-small; add --yes" in refused.err
    assert dry.out == "Would import: 0 memories, 1 session, 0 tasks, 0 learnings (2 messages)\n"
    assert done.out == "Imported: 0 memories, 1 session, 0 tasks, 0 learnings (2 messages)\n"


def test_a_small_import_or_a_free_model_is_not_asked_about(supaclaw: Supaclaw, place: Path) -> None:
    (place / "config.json").write_text('{"models": {"embedding": "litellm:openai/text-embedding-3-small"}}')
    (place / "conversations.json").write_text(json.dumps([chatgpt("a", said("user", "one"), said("assistant", "two"))]))
    assert supaclaw("import", "chatgpt", "conversations.json").code == 0
