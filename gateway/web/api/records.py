"""What is stored: sessions, tasks, and messages that could not be delivered."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query

from gateway.domain.ids import TaskId
from gateway.domain.scopes import Scope
from gateway.store import outbox, sessions, tasks
from gateway.store.outbox import OutboxRow, State
from gateway.store.sessions import SessionSummary
from gateway.store.tasks import TaskSummary
from gateway.web.access import needs
from gateway.web.errors import Refused
from gateway.web.site import AtSite

Limit = Annotated[int, Query(ge=1, le=500)]

router = APIRouter(dependencies=[Depends(needs(Scope.READ))])


@router.get("/api/sessions")
async def recent(site: AtSite, limit: Limit = 50) -> list[SessionSummary]:
    """The sessions last spoken in, newest first."""
    async with site.backend.database.connection() as conn:
        return await sessions.recent(conn, limit)


@router.get("/api/tasks/{task_id}")
async def task(site: AtSite, task_id: UUID) -> TaskSummary:
    """Where one task stands."""
    async with site.backend.database.connection() as conn:
        row = await tasks.get(conn, TaskId(task_id))
    if row is None:
        raise Refused(404, "not_found", "There is no such task.")
    return row


@router.get("/api/outbox")
async def letters(site: AtSite, state: State = "failed", limit: Limit = 100) -> list[OutboxRow]:
    """What was not delivered, or perhaps not (`uncertain`), newest first."""
    async with site.backend.database.connection() as conn:
        return await outbox.in_state(conn, state, limit)
