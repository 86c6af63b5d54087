import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.domain.conversation.transcript import AssistantText, UserText
from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.principals import Label, Role
from gateway.flow.secrets.vault import Vault
from gateway.store.connection.pool import Connection, Database
from gateway.store.people import principals
from gateway.store.transcript import messages, sessions
from tests.cli.conftest import Supaclaw


async def talk(tx: Connection, whose: PrincipalId, *texts: str, unattended: bool = False) -> SessionId:
    session = await sessions.start(tx, whose, Label.OWNER, unattended=unattended)
    for number, text in enumerate(texts):
        entry = AssistantText(text) if number % 2 else UserText(text, datetime.now(UTC))
        await messages.say(tx, session, whose, entry, label=Label.OWNER, origin="web")
    return session


@pytest.fixture
def trip(dsn: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A chat of the owner's; a run and a member's chat are there as well."""
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)

    async def said() -> SessionId:
        async with await Database.connect(dsn) as database, database.transaction() as tx:
            owner = await principals.add(tx, Role.OWNER, "Ada", [])
            other = await principals.ensure_member(tx, "Bo", "telegram:7")
            await talk(tx, owner, "Water the plants", unattended=True)
            await talk(tx, other, "Bo's secret")
            return await talk(tx, owner, "Plan a trip to \x1b[2JLisbon", "Gladly.")

    return str(asyncio.run(said()))


def test_chats_are_listed_with_their_titles(supaclaw: Supaclaw, trip: str):
    for command in (("sessions",), ("sessions", "list")):
        listed = supaclaw(*command).out
        assert "Plan a trip to [2JLisbon" in listed
        assert "secret" not in listed
        assert "plants" not in listed
    [row] = supaclaw("sessions", "--limit", "5", "--json").json
    assert (row["id"], row["title"], row["messages"]) == (trip, "Plan a trip to [2JLisbon", 2)
    assert "Water the plants" in supaclaw("sessions", "--automation").out


def test_help_names_the_commands(supaclaw: Supaclaw):
    for asked in ("--help", "-h"):
        shown = supaclaw("sessions", asked).out
        assert all(name in shown for name in ("list", "show", "export"))
    assert supaclaw("sessions", "frobnicate").code == 2


def test_one_is_shown_by_the_beginning_of_its_id(supaclaw: Supaclaw, trip: str):
    shown = supaclaw("sessions", "show", trip[:8]).out
    assert shown.startswith("# Plan a trip to [2JLisbon\n")
    assert "\x1b" not in shown
    assert "Gladly." in shown
    said = supaclaw("sessions", "show", trip, "--json").json
    assert [row["text"] for row in said["messages"]] == ["Plan a trip to \x1b[2JLisbon", "Gladly."]


def test_one_is_saved_as_a_file_and_overwrites_none(supaclaw: Supaclaw, trip: str, place: Path):
    done = supaclaw("sessions", "export", trip[:8])
    name = f"{datetime.now(UTC):%Y-%m-%d}-plan-a-trip-to-2jlisbon.md"
    assert (done.code, done.out) == (0, f"{name}\n")
    assert "Gladly." in (place / name).read_text()
    assert "already exists" in supaclaw("sessions", "export", trip).err
    assert supaclaw("sessions", "export", trip, "--format", "json", "-o", "trip.json").out == "trip.json\n"
    assert json.loads((place / "trip.json").read_text())["session"] == trip
    assert "Gladly." in supaclaw("sessions", "export", trip, "-o", "-").out


def test_an_export_names_a_secret_that_was_said_before_it_was_one(supaclaw: Supaclaw, trip: str, dsn: str, place: Path):
    async def keep() -> None:
        async with await Database.connect(dsn) as database:
            async with database.connection() as conn:
                owner = await principals.owner(conn)
            vault = Vault(database, place / "data", {})
            await vault.put(owner.id, "PLACE", "a trip to", shared=True)

    asyncio.run(keep())
    for command in (("show", trip), ("show", trip, "--json"), ("export", trip, "-o", "-")):
        told = supaclaw("sessions", *command).out
        assert "a trip to" not in told
        assert "Plan ${secret:PLACE} " in told
    assert "a-trip-to" not in supaclaw("sessions", "export", trip).out


def test_what_is_not_there_says_so(supaclaw: Supaclaw, trip: str):
    missing = supaclaw("sessions", "show", "ffffffff-")
    assert (missing.code, missing.err) == (
        1,
        "supaclaw: no conversation, or more than one, begins with ffffffff-; `supaclaw sessions` lists them\n",
    )
