"""The status of a task."""

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
    """The status of one task. With the trigger scope only: of its own triggers, without `result` and `error`.

    Otherwise a source could trigger a question about the owner's data and read the answer here.
    """
    reads = permits(caller.scopes, Scope.READ)
    async with site.backend.database.connection() as conn:
        if reads or await triggers.sent_by(conn, TaskId(task_id), caller.account, caller.source):
            report = await tasks.report(conn, TaskId(task_id))
            if report is not None:
                return report if reads else replace(report, result=None, error=None)
    raise Refused(404, "not_found", "There is no such task.")
