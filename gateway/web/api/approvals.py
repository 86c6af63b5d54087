"""Approvals, to look at: who holds a token answers none."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from pydantic import JsonValue, TypeAdapter

from gateway.agent.work.approvals import why_asked
from gateway.domain.people.credentials import Scope
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewRow, State
from gateway.web.auth.access import needs
from gateway.web.site import AtSite

router = APIRouter(dependencies=[Depends(needs(Scope.READ))])


@dataclass(frozen=True, slots=True)
class Review:
    """A question to the owner; `change` is exactly what would be done."""

    name: str
    kind: str
    task_id: UUID | None
    tool: str
    state: State
    why: str
    change: str
    asked_at: datetime
    expires_at: datetime | None
    decided_at: datetime | None
    decided_by: str | None
    response: dict[str, JsonValue] | None

    @classmethod
    def of(cls, row: ReviewRow) -> Self:
        """From its row."""
        response = TypeAdapter(dict[str, JsonValue]).validate_python(row.response) if row.response else None
        return cls(
            row.name,
            row.kind,
            row.task_id,
            row.tool,
            row.state,
            why_asked(row),
            row.preview,
            row.created_at,
            row.expires_at,
            row.decided_at,
            row.decided_by,
            response,
        )


@router.get("/api/reviews")
async def listed(site: AtSite, limit: Annotated[int, Query(ge=1, le=500)] = 50) -> list[Review]:
    """What waits for the owner's answer, the oldest first; then what was answered, the newest first."""
    owner = site.backend.owner.id
    async with site.backend.database.connection() as conn:
        waiting = await reviews.list_open(conn, owner, site.backend.clock.now())
        return [Review.of(row) for row in [*waiting, *await reviews.latest(conn, owner, limit)][:limit]]
