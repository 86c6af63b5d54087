"""The commands that read and change the database themselves: owner, token, sessions."""

import pytest

from tests.cli.conftest import Supaclaw


@pytest.fixture(autouse=True)
def _in_a_fresh_database(dsn: str, monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> None:
    assert supaclaw
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)


def test_before_the_first_start_there_is_no_owner(supaclaw: Supaclaw) -> None:
    assert supaclaw("owner", "show", "--json").json == []

    done = supaclaw("token", "create", "phone", "--scope", "chat")

    assert done.code == 1
    assert "there is no owner yet" in done.err


def test_an_owners_id_replaces_the_one_before_on_that_channel(supaclaw: Supaclaw) -> None:
    supaclaw("owner", "set", "telegram", "1")
    done = supaclaw("owner", "set", "telegram", "2")

    assert done.out == "the owner on telegram is 2, no longer 1\n"
    (owner,) = supaclaw("owner", "show", "--json").json
    assert owner["identities"] == ["telegram:2"]
    assert "telegram:2" in supaclaw("owner", "show").out


def test_an_owner_on_an_unknown_channel_is_refused(supaclaw: Supaclaw) -> None:
    done = supaclaw("owner", "set", "telegarm", "1")

    assert done.code == 1
    assert "did you mean telegram?" in done.err


def test_a_token_is_shown_once_and_listed_without_itself(supaclaw: Supaclaw) -> None:
    supaclaw("owner", "set", "telegram", "1")

    token = supaclaw("token", "create", "phone", "--scope", "chat", "--scope", "read").out.strip()

    listed = supaclaw("token", "list", "--json")
    (row,) = listed.json
    assert token.startswith("claw_")
    assert token not in listed.out
    assert (row["name"], sorted(row["scopes"])) == ("phone", ["chat", "read"])
    assert "chat, read" in supaclaw("token", "list").out


def test_a_name_is_taken_once(supaclaw: Supaclaw) -> None:
    supaclaw("owner", "set", "telegram", "1")
    supaclaw("token", "create", "phone", "--scope", "chat")

    done = supaclaw("token", "create", "phone", "--scope", "chat")

    assert done.code == 1
    assert "phone" in done.err


def test_a_token_can_be_revoked_once(supaclaw: Supaclaw) -> None:
    supaclaw("owner", "set", "telegram", "1")
    supaclaw("token", "create", "phone", "--scope", "chat")

    ended = "messages closed: 0; runs cancelled: 0; schedules paused: none"
    assert supaclaw("token", "revoke", "phone").out == f"phone is revoked ({ended})\n"
    assert supaclaw("token", "list", "--json").json == []
    assert supaclaw("token", "revoke", "phone").code == 1


def test_a_scope_that_does_not_exist_is_a_usage_error(supaclaw: Supaclaw) -> None:
    assert supaclaw("token", "create", "phone", "--scope", "fly").code == 2


def test_without_conversations_the_list_is_empty(supaclaw: Supaclaw) -> None:
    assert supaclaw("sessions", "--json").json == []
    assert supaclaw("sessions").out == "No conversations yet.\n"
