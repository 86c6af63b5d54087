"""Approvals, read-only: no token can answer them."""

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

_SAME_FIELDS = ("name", "kind", "task_id", "tool", "state", "expires_at", "decided_at", "decided_by")

router = APIRouter(dependencies=[Depends(needs(Scope.READ))])


@dataclass(frozen=True, slots=True)
class Review:
    """A question to the owner; `change` is the exact effect of an approval."""

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
        same = {name: getattr(row, name) for name in _SAME_FIELDS}
        return cls(**same, why=why_asked(row), change=row.preview, asked_at=row.created_at, response=response)


@router.get("/api/reviews")
async def listed(site: AtSite, limit: Annotated[int, Query(ge=1, le=500)] = 50) -> list[Review]:
    """List open questions to the owner, the oldest first, then the answered ones, the newest first."""
    owner = site.owner.id
    async with site.database.connection() as conn:
        waiting = await reviews.list_open(conn, owner, site.clock.now())
        return [Review.of(row) for row in [*waiting, *await reviews.latest(conn, owner, limit)][:limit]]
