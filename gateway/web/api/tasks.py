"""Where a task stands."""

from dataclasses import replace
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends

from gateway.domain.ids import TaskId
from gateway.domain.scopes import Scope, permits
from gateway.store import tasks
from gateway.store.scheduling import triggers
from gateway.store.tasks import TaskReport
from gateway.web.access import Caller, needs
from gateway.web.errors import Refused
from gateway.web.site import AtSite

router = APIRouter()


@router.get("/api/tasks/{task_id}")
async def task(
    site: AtSite, caller: Annotated[Caller, Depends(needs(Scope.READ, Scope.TRIGGER))], task_id: UUID
) -> TaskReport:
    """What became of one task; who may only trigger sees how it stands with what it triggered, and no words.

    Otherwise whoever can send something could ask for what is the owner's, and read it here.
    """
    reads = permits(caller.scopes, Scope.READ)
    async with site.backend.database.connection() as conn:
        if reads or await triggers.sent_by(conn, TaskId(task_id), caller.account, caller.source):
            report = await tasks.report(conn, TaskId(task_id))
            if report is not None:
                return report if reads else replace(report, result=None, error=None)
    raise Refused(404, "not_found", "There is no such task.")
