"""Logs of outside agents: their conversations, stored like imported ones."""

import asyncio
from dataclasses import dataclass, replace
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request

from gateway.agent.tool_sources import parameters_of
from gateway.domain.imports import ImportedMemory, ImportedMessage, Record
from gateway.domain.memory import DEFAULT_AGENT
from gateway.domain.people.scopes import Scope
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.store.connection.pool import Connection
from gateway.store.engine import tasks
from gateway.store.memory import turns
from gateway.store.transcript import imports
from gateway.web.auth.access import MESSAGE_BODY, Caller, needs
from gateway.web.http.bodies import parsed, validated
from gateway.web.http.errors import Refused
from gateway.web.logs import Log, LoggedSession, LogReader
from gateway.web.site import AtSite, Site

SOURCE = "log"
INDEXED = 500
"""Messages that can be found at once; what is more, soon after."""
_SHAPE = {"requestBody": {"required": True, "content": {"application/json": {"schema": parameters_of(Log)}}}}

router = APIRouter()
Logger = Annotated[Caller, Depends(needs(Scope.MEMORY, body=MESSAGE_BODY))]


@dataclass(frozen=True, slots=True)
class Ended:
    """A logged conversation; `session_id` is null while nothing of it is stored."""

    external_key: str
    session_id: UUID | None
    ended: bool


@dataclass(frozen=True, slots=True)
class Logged:
    """What a log came to: `known` was stored before, `passed` left out by filter, `problems` cut or damaged."""

    sessions: list[Ended]
    messages: int
    memories: int
    known: int
    passed: dict[str, int]
    problems: list[str]


@router.post("/api/log", openapi_extra=_SHAPE)
async def log(request: Request, site: AtSite, caller: Logger) -> Logged:
    """Store conversations of an outside agent. The same again changes nothing."""
    from gateway.importers.storing.writer import ImportWriter  # few gateways ever need it

    asked = await parsed(await request.body(), lambda body: validated(Log, body))
    agent, backend = _agent(caller, asked), site.backend
    trust = Label.KNOWN if caller.reach.everything else Label.UNTRUSTED
    writer = ImportWriter(
        backend.database, backend.owner.id, agent, backend.clock.now(), own=False, dry_run=False, at_best=trust
    )
    await writer.store(SOURCE, await asyncio.to_thread(lambda: _cleaned(site, asked)))
    await backend.database.run(lambda tx: turns.index_new(tx, None, INDEXED))
    tally = writer.tally
    return Logged(
        sessions=[await _ended(site, agent, session) for session in asked.sessions],
        messages=tally.messages,
        memories=tally.memories,
        known=tally.known,
        passed=dict(tally.passed),
        problems=[f"{damaged.place}: {damaged.why}" for damaged in tally.damaged],
    )


def _cleaned(site: Site, asked: Log) -> list[Record]:
    """What is stored, and what a model reads of it later, names secrets only."""
    return [
        replace(record, text=site.clean(record.text))
        if isinstance(record, ImportedMessage | ImportedMemory)
        else record
        for record in LogReader(asked).records()
    ]


def _agent(caller: Caller, asked: Log) -> str:
    own = caller.reach.agent
    if own is not None and asked.agent not in {None, own}:
        message = f"This token logs for {own} only."
        raise Refused(403, "wrong_agent", message, param="agent", type="permission_error")
    return own or asked.agent or DEFAULT_AGENT


async def _ended(site: Site, agent: str, session: LoggedSession) -> Ended:
    """Have it summarised if it is over; another task is made only when the one before is done."""
    from gateway.importers.storing.writer import session_key

    owner, key = site.backend.owner.id, session_key(SOURCE, session.external_key)

    async def end(tx: Connection) -> Ended:
        id = await imports.session_of(tx, owner, agent, key)
        if id is None or not session.end:
            return Ended(session.external_key, id, ended=False)
        payload = {"session": str(id)}
        await tasks.create(tx, owner, "summarise", Lane.AGENTS, payload=payload, dedupe=f"summarise:{id}")
        await imports.end(tx, id)
        return Ended(session.external_key, id, ended=True)

    return await site.backend.database.run(end)
