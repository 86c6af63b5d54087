"""`supaclaw tasks` and `supaclaw agents`."""

from pathlib import Path
from typing import Any, cast

import pytest

from tests.cli.conftest import Supaclaw


@pytest.fixture(autouse=True)
def _somebody_owns_it(dsn: str, monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> None:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    supaclaw("owner", "set", "telegram", "1")


def rows(done: Any) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], done.json)


def agent(place: Path, text: str) -> None:
    folder = place / "data" / "workspace" / ".agents" / "agents"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text(text)


def test_one_is_started_once_a_key_shown_and_cancelled(supaclaw: Supaclaw) -> None:
    assert supaclaw("tasks").out.startswith("No tasks.")
    made = supaclaw("tasks", "create", "compare offers", "--key", "k", "--budget", "9")
    assert (made.code, made.err) == (0, "")
    assert supaclaw("tasks", "create", "compare offers", "--key", "k").out == made.out
    [listed] = rows(supaclaw("tasks", "list", "--json"))
    assert (listed["name"], listed["agent"], listed["status"]) == ("compare offers", "main", "pending")
    assert listed["budget_usd"] == 1.0, "no more than is configured"
    assert "$0.00" in supaclaw("tasks", "list").out
    id = made.out.strip()
    assert "0 of 1 tasks are over" in supaclaw("tasks", "show", id[:8]).out
    assert supaclaw("tasks", "cancel", id[:8]).out == f"Cancelled: {id}\n"
    followed = supaclaw("tasks", "follow", id[:8])
    assert (followed.code, followed.out) == (1, "1 of 1 tasks are over; $0.00 of $1.00 used.\ncancelled\n")


def test_a_trace_is_listed_and_runs_are_compared(supaclaw: Supaclaw) -> None:
    one, two = (supaclaw("tasks", "create", text).out.strip() for text in ("one", "two"))
    assert supaclaw("tasks", "trace", one, "--json").json == []
    compared = supaclaw("tasks", "compare", one, two)
    assert (compared.code, "A: 1 tasks, 0 steps" in compared.out) == (0, True)
    assert supaclaw("tasks", "compare", one, two, "--json").json["same"] == 0
    refused = supaclaw("tasks", "fork", one, "--at", "7")
    assert (refused.code, refused.err.count("\n"), "no model call" in refused.err) == (1, 1, True)


def test_what_is_not_there_is_refused(supaclaw: Supaclaw) -> None:
    for arguments in (("show", "abcd"), ("cancel", "xyz%"), ("follow", "-")):
        assert supaclaw("tasks", *arguments).code == 1
    refused = supaclaw("tasks", "create", "x", "--agent", "nobody")
    assert (refused.code, "no agent 'nobody'" in refused.err) == (1, True)


def test_agents_are_listed_shown_and_checked(supaclaw: Supaclaw, place: Path) -> None:
    agent(place, "---\nname: Scout\ndescription: looks ahead\ntools: [read_file]\n---\nLook ahead.")
    listed = rows(supaclaw("agents", "list", "--json"))
    assert [(row["slug"], row["state"]) for row in listed] == [("main", "on"), ("scout", "on")]
    shown = supaclaw("agents", "show", "scout").out
    assert "tools: read_file" in shown
    assert "Look ahead." in shown
    assert supaclaw("agents", "test", "scout").code == 0


def test_a_wrong_file_is_told(supaclaw: Supaclaw, place: Path) -> None:
    agent(place, "---\nname: Scout\n---\n")
    checked = supaclaw("agents", "test", "scout")
    assert (checked.code, "description" in checked.err) == (1, True)
    assert "wrong" in supaclaw("agents").out
    assert supaclaw("agents", "show", "nobody").code == 1
