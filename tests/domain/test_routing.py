from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.domain.channels.routing import Decision, Edit, Ignore, RunCommand, StartTurn, decide, parse_command
from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.principals import Role

COMMANDS = {"new", "ping"}


def inbound(text: str, *, bot: bool = False, **more: Any) -> Inbound:
    sender = Sender("1", "Ada", is_bot=bot)
    return Inbound(
        Address("fake", "bot", "1"),
        sender,
        text,
        "m1",
        datetime.now(UTC),
        **{"private": True, "as_owner": True, **more},
    )


def route(text: str, role: Role = Role.OWNER, **more: Any) -> Decision:
    return decide(inbound(text, **more), role, COMMANDS)


def test_a_message_is_answered() -> None:
    assert route("hello") == StartTurn()


def test_a_known_command_is_run_with_its_argument() -> None:
    assert route("/ping") == RunCommand("ping", "")
    assert route("/new  fresh start ") == RunCommand("new", "fresh start")
    assert route("/new\nsecond line") == RunCommand("new", "second line")


@pytest.mark.parametrize("text", ["/nope", "/nope what is it?", "/PING", "/new@another_bot", "/tmp\nand more"])
def test_an_unknown_command_is_ignored(text: str) -> None:
    assert route(text) == Ignore("unknown command")


@pytest.mark.parametrize("text", ["/etc/passwd what is in it?", "/home/ada", "/", "//ping", "/new/", "/new-ish", "/né"])
def test_a_text_that_only_looks_like_a_command_is_a_message(text: str) -> None:
    assert route(text) == StartTurn()


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_nothing_said_is_ignored(text: str) -> None:
    assert route(text) == Ignore("empty")


def test_an_edit_names_what_it_edits_even_when_it_looks_like_a_command() -> None:
    assert route("/new", edits="m0") == Edit("m0")


def test_bots_and_strangers_are_ignored_whatever_they_send() -> None:
    for text in ("hello", "/new", ""):
        assert route(text, bot=True) == Ignore("sent by a bot")
        assert route(text, Role.STRANGER) == Ignore("sent by a stranger")
    assert route("hello", Role.STRANGER, edits="m0") == Ignore("sent by a stranger")


def test_group_talk_that_is_not_meant_for_the_agent_is_ignored() -> None:
    assert route("hello all", addressed=False) == Ignore("not addressed to the agent")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("/model", ("model", "")),
        ("/model fast", ("model", "fast")),
        ("/model\nfast now\nplease ", ("model", "fast now\nplease")),
        ("/model@a_bot fast", ("model@a_bot", "fast")),
        ("/etc/passwd", ("", "")),
        ("model", ("", "")),
    ],
)
def test_name_and_argument_are_told_apart(text: str, parsed: tuple[str, str]) -> None:
    assert parse_command(text) == parsed
