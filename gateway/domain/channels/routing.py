"""Decides what to do with an inbound message, without I/O, before anything is stored."""

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import TypeAlias

from gateway.domain.conversation.inbound import Inbound
from gateway.domain.principals import Role

_COMMAND = re.compile(r"/(\w+(?:@\w+)?)(?!\S)", re.ASCII)


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Run a slash command; `argument` is the text after its name."""

    name: str
    argument: str


@dataclass(frozen=True, slots=True)
class StartTurn:
    """Store the message and have it answered: the running turn takes it before its next model call, else one starts."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Record the edit; a text that no turn has taken yet is replaced."""

    platform_id: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """Do nothing and say nothing."""

    reason: str


Decision: TypeAlias = RunCommand | StartTurn | Edit | Ignore


def decide(inbound: Inbound, role: Role, commands: Set[str]) -> Decision:
    """The route of one message; strangers and bots come first, so that nothing of theirs is looked at."""
    if inbound.sender.is_bot:
        return Ignore("sent by a bot")
    if role is Role.STRANGER:
        return Ignore("sent by a stranger")
    if inbound.edits is not None:
        return Edit(inbound.edits)
    name, argument = command_in(inbound)
    if name in commands:
        return RunCommand(name, argument)
    if name and not inbound.attachments:
        return Ignore("unknown command")
    if not inbound.addressed:
        return Ignore("not addressed to the agent")
    results = inbound.client is not None and inbound.client.results
    if not (inbound.text.strip() or inbound.added.strip() or inbound.attachments or results):
        return Ignore("empty")
    return StartTurn()


def command_in(inbound: Inbound) -> tuple[str, str]:
    """The same as `parse_command`; a forwarded text is nobody's command."""
    return ("", "") if inbound.forwarded else parse_command(inbound.text)


def parse_command(text: str) -> tuple[str, str]:
    """Name and argument of a command, "" and "" for any other text; names are case-sensitive.

    The name of a command that is meant for one bot ends with that bot's: `new@some_bot`.
    """
    match = _COMMAND.match(text)
    return (match[1], text[match.end() :].strip()) if match else ("", "")
