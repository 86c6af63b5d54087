"""Stored records: sessions, and messages that could not be delivered."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from gateway.domain.people.credentials import Scope
from gateway.store.delivery import outbox
from gateway.store.delivery.outbox import OutboxRow, State
from gateway.store.transcript import sessions
from gateway.store.transcript.sessions import SessionSummary
from gateway.web.auth.access import needs
from gateway.web.site import AtSite

Limit = Annotated[int, Query(ge=1, le=500)]

router = APIRouter(dependencies=[Depends(needs(Scope.READ))])


@router.get("/api/sessions")
async def recent(site: AtSite, limit: Limit = 50) -> list[SessionSummary]:
    """List sessions, the most recently active first."""
    async with site.database.connection() as conn:
        return await sessions.recent(conn, limit)


@router.get("/api/outbox")
async def undelivered(site: AtSite, state: State = "failed", limit: Limit = 100) -> list[OutboxRow]:
    """List messages that were not delivered, or perhaps not (`uncertain`), the newest first."""
    async with site.database.connection() as conn:
        return await outbox.in_state(conn, state, limit)
