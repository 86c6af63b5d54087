"""Logs of outside agents: their conversations, filtered and stored like imported ones."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import Field, StringConstraints, model_validator

from gateway.agent.tool_sources import parameters_of
from gateway.domain.memory.imports import ImportedMemory, ImportedMessage, ImportedSession, Passed, Record
from gateway.domain.memory.memories import DEFAULT_AGENT
from gateway.domain.people.credentials import Scope
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line
from gateway.domain.work.tasks import Lane
from gateway.memory.consolidation import memory_request
from gateway.store.connection.pool import Connection
from gateway.store.memory import indexing
from gateway.store.transcript import imports
from gateway.store.work import tasks
from gateway.web.auth.access import MESSAGE_BODY, Caller, needs
from gateway.web.http.bodies import Moment, Name, RequestBody, Text, json_body, parsed, validated
from gateway.web.http.errors import Refused
from gateway.web.site import AtSite, Site

MOST_SESSIONS = 500
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class LoggedMessage(RequestBody):
    """A message; without an `external_id` its text and its time identify it."""

    external_id: Name | None = None
    role: Name
    text: Text
    at: Moment | None = None


class LoggedSession(RequestBody):
    """A conversation of an agent, or a part of it; with `end` it is over and gets a summary."""

    external_key: Name
    started_at: Moment | None = None
    messages: tuple[LoggedMessage, ...] = ()
    end: bool = False


class Log(RequestBody):
    """Conversations, and filters for their messages. A single conversation may be sent as the whole body."""

    sessions: tuple[LoggedSession, ...] = Field(min_length=1, max_length=MOST_SESSIONS)
    agent: Name | None = Field(None, description="The agent; default: the token's own.")
    roles: frozenset[str] = Field(frozenset({"user", "assistant"}), description="Of these two, the roles to keep.")
    min_length: int = Field(1, ge=1)
    max_length: int | None = Field(None, ge=1)
    only: tuple[Pattern, ...] = Field((), max_length=20, description="Keep what matches one of these; * is any text.")
    skip: tuple[Pattern, ...] = Field((), max_length=20, description="Leave out what matches one of these.")
    remember: bool = Field(False, description='Store memories that the user asked for ("remember that …").')

    @model_validator(mode="before")
    @classmethod
    def _alone(cls, value: object) -> object:
        return {"sessions": [value]} if isinstance(value, dict) and "external_key" in value else value


def _records(log: Log, trust: Label, clean: Callable[[str], str]) -> Iterator[Record]:
    """Yield the records to store, trusted at most so and without secrets, and those that are left out."""
    for session in log.sessions:
        place = one_line(session.external_key, 80)
        yield ImportedSession(session.external_key, session.started_at, place)
        for number, message in enumerate(session.messages, start=1):
            yield from _read(log, message, f"{place}:{number}", trust, clean)


def _read(log: Log, message: LoggedMessage, place: str, trust: Label, clean: Callable[[str], str]) -> Iterator[Record]:
    match _unwanted(log, message), message.role:
        case "", ("user" | "assistant") as role:
            yield ImportedMessage(role, clean(message.text), message.at, place, trust, message.external_id or "")
            if log.remember and role == "user" and (remembered := memory_request(message.text)):
                yield ImportedMemory(clean(remembered), place, trust, at=message.at)
        case why, _:
            yield Passed(why)


def _unwanted(log: Log, message: LoggedMessage) -> str:
    text = message.text.strip()
    if message.role not in log.roles & {"user", "assistant"}:
        return "role"
    if len(text) < log.min_length or (log.max_length and len(text) > log.max_length):
        return "length"
    wanted = not log.only or _matches(text, log.only)
    return "" if wanted and not _matches(text, log.skip) else "pattern"


def _matches(text: str, patterns: Sequence[str]) -> bool:
    """Whether the text has the form of a pattern with wildcards; a regular expression could take forever."""
    return any(fnmatchcase(text.casefold(), pattern.casefold()) for pattern in patterns)


SOURCE = "log"
INDEXED = 500
"""Messages that are indexed before the response; further ones soon after."""

router = APIRouter()
Logger = Annotated[Caller, Depends(needs(Scope.MEMORY, body=MESSAGE_BODY))]


@dataclass(frozen=True, slots=True)
class LoggedSessionState:
    """A logged conversation; `session_id` is null while nothing of it is stored."""

    external_key: str
    session_id: UUID | None
    ended: bool


@dataclass(frozen=True, slots=True)
class LogResult:
    """The result: `known` were stored before, `passed` left out by a filter, `problems` cut or damaged."""

    sessions: list[LoggedSessionState]
    messages: int
    memories: int
    known: int
    passed: dict[str, int]
    problems: list[str]


@router.post("/api/log", openapi_extra=json_body(parameters_of(Log)))
async def log(request: Request, site: AtSite, caller: Logger) -> LogResult:
    """Store conversations of an outside agent. A repeat changes nothing."""
    from gateway.importers.records.writer import ImportWriter  # few gateways ever need it

    body = await parsed(await request.body(), lambda body: validated(Log, body))
    agent = _agent(caller, body)
    trust = Label.KNOWN if caller.reach.everything else Label.UNTRUSTED
    records = await asyncio.to_thread(lambda: list(_records(body, trust, site.clean)))
    writer = ImportWriter(site.database, site.owner.id, agent, site.clock.now(), own=False, dry_run=False, clean=str)
    await writer.store(SOURCE, records)
    await site.database.run(lambda tx: indexing.index_turns(tx, None, INDEXED))
    tally = writer.tally
    problems = [f"{damaged.place}: {damaged.why}" for damaged in tally.damaged]
    sessions = [await _ended(site, agent, session) for session in body.sessions]
    return LogResult(sessions, tally.messages, tally.memories, tally.known, dict(tally.passed), problems)


def _agent(caller: Caller, body: Log) -> str:
    own = caller.reach.agent
    if own is not None and body.agent not in {None, own}:
        raise Refused(403, "wrong_agent", f"This token logs for {own} only.", param="agent")
    return own or body.agent or DEFAULT_AGENT


async def _ended(site: Site, agent: str, session: LoggedSession) -> LoggedSessionState:
    """Queue a summary if it is over; at most one at a time."""
    from gateway.importers.records.writer import session_key

    owner, key = site.owner.id, session_key(SOURCE, session.external_key)

    async def end(tx: Connection) -> LoggedSessionState:
        id = await imports.session_of(tx, owner, agent, key)
        if id is None or not session.end:
            return LoggedSessionState(session.external_key, id, ended=False)
        payload = {"session": str(id)}
        await tasks.create(tx, owner, "summarise", Lane.AGENTS, payload=payload, dedupe=f"summarise:{id}")
        await imports.end(tx, id)
        return LoggedSessionState(session.external_key, id, ended=True)

    return await site.database.run(end)
