"""Traces of tasks as JSON: what a step took, and where the transcript has what was said."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import UUID

from gateway.agent.work import task_trees
from gateway.agent.work.task_trees import NoSuchTask
from gateway.domain.ids import TaskId
from gateway.domain.json import Json
from gateway.store.engine import steps, trees
from gateway.store.engine.steps import StepRow
from gateway.web.http.errors import Refused
from gateway.web.live.sse import Frame, to_json
from gateway.web.site import Site


async def find(site: Site, task: UUID) -> TaskId:
    """The owner's task of a tree; raises `Refused`."""
    async with site.backend.database.connection() as conn:
        try:
            return await task_trees.find_task(conn, site.backend.owner.id, str(task))
        except NoSuchTask:
            raise Refused(404, "not_found", "There is no such task.") from None


async def nothing_new(site: Site, task: TaskId, since: int, *, tree: bool) -> bool:
    """Whether all is over that could do a step behind this one."""
    async with site.backend.database.connection() as conn:
        counts = await trees.counts(conn, task, tree=tree)
        over = all(status.final for status in counts)
        return over and not await steps.trace(conn, task, tree=tree, since=since, most=1)


async def frames(site: Site, task: TaskId, since: int, *, tree: bool) -> AsyncGenerator[Frame, None]:
    """Yield each step behind `since`, the states whenever they change, and an end."""
    async with aclosing(site.backend.traces.follow(task, tree=tree, since=since)) as following:
        async for progress in following:
            for step in progress.steps:
                yield Frame(to_json(described(step)), id=str(step.id))
            counts: dict[str, Json] = {status.value: number for status, number in progress.counts.items()}
            yield Frame(to_json({"type": "end" if progress.over else "state", "counts": counts}))


def described(step: StepRow) -> dict[str, Json]:
    """Numbers and references: of models that failed before only their names and the kind of error."""
    return {
        "type": "step",
        "id": step.id,
        "task_id": str(step.task_id),
        "kind": step.kind,
        "name": step.name,
        "ok": step.ok,
        "message_id": step.message_id,
        "tokens_in": step.tokens_in,
        "tokens_out": step.tokens_out,
        "tokens_cached": step.tokens_cached,
        "cost_usd": step.cost_usd,
        "latency_ms": step.latency_ms,
        "failed": [{"model": each.model, "error": each.error} for each in step.failed],
        "at": step.created_at.isoformat(),
    }
