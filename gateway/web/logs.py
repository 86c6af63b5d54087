"""What outside agents log: which of their messages are kept, as records of an import."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from gateway.domain.imports import ImportedMemory, ImportedMessage, ImportedSession, Passed, Record
from gateway.domain.text.texts import one_line
from gateway.memory.consolidation import asked_to_remember
from gateway.web.http.fields import Moment, Name, Text

MOST_SESSIONS = 500
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LoggedMessage(_Body):
    """What was said; without an `external_id` it is told from others by its words and its time."""

    external_id: Name | None = None
    role: Name
    text: Text
    at: Moment | None = None


class LoggedSession(_Body):
    """A conversation of an agent's, or more of it; with `end` it is over and gets a summary."""

    external_key: Name
    started_at: Moment | None = None
    messages: tuple[LoggedMessage, ...] = ()
    end: bool = False


class Log(_Body):
    """Conversations, and which of their messages are kept. One conversation may stand for the whole body."""

    sessions: tuple[LoggedSession, ...] = Field(min_length=1, max_length=MOST_SESSIONS)
    agent: Name | None = Field(None, description="Whose they are; a token's agent is its own.")
    roles: frozenset[str] = Field(frozenset({"user", "assistant"}), description="No others are ever kept.")
    min_length: int = Field(1, ge=1)
    max_length: int | None = Field(None, ge=1)
    only: tuple[Pattern, ...] = Field((), max_length=20, description="Keep what one of these matches; * is any text.")
    skip: tuple[Pattern, ...] = Field((), max_length=20, description="Leave out what one of these matches.")
    remember: bool = Field(False, description='Keep what the user asked to remember ("remember that …").')

    @model_validator(mode="before")
    @classmethod
    def _alone(cls, value: object) -> object:
        return {"sessions": [value]} if isinstance(value, dict) and "external_key" in value else value


@dataclass(frozen=True)
class LogReader:
    """Reads a log into records."""

    log: Log

    def records(self) -> Iterator[Record]:
        """What is to be stored, and what is left out."""
        for session in self.log.sessions:
            place = one_line(session.external_key, 80)
            yield ImportedSession(session.external_key, session.started_at, place)
            for number, message in enumerate(session.messages, start=1):
                yield from self._read(message, f"{place}:{number}")

    def _read(self, message: LoggedMessage, place: str) -> Iterator[Record]:
        match self._unwanted(message), message.role:
            case "", ("user" | "assistant") as role:
                yield ImportedMessage(role, message.text, message.at, place, key=message.external_id or "")
                if self.log.remember and role == "user" and (told := asked_to_remember(message.text)):
                    yield ImportedMemory(told, place, at=message.at)
            case why, _:
                yield Passed(why)

    def _unwanted(self, message: LoggedMessage) -> str:
        text = message.text.strip()
        if message.role not in self.log.roles & {"user", "assistant"}:
            return "role"
        if len(text) < self.log.min_length or (self.log.max_length and len(text) > self.log.max_length):
            return "length"
        wanted = not self._only or any(pattern.match(text) for pattern in self._only)
        return "" if wanted and not any(pattern.match(text) for pattern in self._skip) else "pattern"

    @cached_property
    def _only(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(_compiled, self.log.only))

    @cached_property
    def _skip(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(_compiled, self.log.skip))


def _compiled(pattern: str) -> re.Pattern[str]:
    """Wildcards instead of a regular expression, which could take for ever."""
    return re.compile(translate(pattern), re.IGNORECASE)
