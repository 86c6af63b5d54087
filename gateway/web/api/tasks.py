"""Tasks: trees of agents that programs start, list, look at and cancel; the status of any task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import Field

from gateway.agent.work.task_trees import NoSuchTask
from gateway.domain.ids import ReviewId, TaskId
from gateway.domain.people.credentials import Scope, permits
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Status
from gateway.domain.work.trees import LONGEST_INPUT, MAIN
from gateway.flow.trees.control import ProgramRequest
from gateway.store.connection.pool import Connection
from gateway.store.trust import reviews
from gateway.store.trust.reviews import FREE_QUESTION, ReviewRow
from gateway.store.work import tasks, trees, triggers
from gateway.store.work.tasks import TaskReport
from gateway.store.work.trees import Node, TreeFilter, TreeRow
from gateway.web.auth.access import Caller, needs, refuse_source
from gateway.web.http.bodies import RequestBody, Text, json_body, validated
from gateway.web.http.errors import Refused
from gateway.web.site import PRINTABLE, AtSite

MAX_BODY = 256 * 1024

router = APIRouter()
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=PRINTABLE)]
Starter = Annotated[Caller, Depends(needs(Scope.TRIGGER, body=MAX_BODY))]


class NewTask(RequestBody):
    """A new tree: the agent that begins it, and its input."""

    agent: str = Field(MAIN, description="Slug of an agent.")
    input: str = Field(min_length=1, max_length=LONGEST_INPUT, pattern=r"\S")
    budget: float | None = Field(None, gt=0, description="US dollars; no more than budgets.task_usd.")
    idempotency_key: str | None = Field(None, min_length=1, max_length=200, pattern=PRINTABLE)


class TaskAnswer(RequestBody):
    """An answer to a question of a task, by its name, such as A17."""

    question: Text
    answer: Text = Field(min_length=1, max_length=2_000)


@dataclass(frozen=True, slots=True)
class CreatedTask:
    """The created task, and the paths of its status and its trace."""

    id: UUID
    status: Status
    status_url: str
    events_url: str


@dataclass(frozen=True, slots=True)
class TaskView(TaskReport):
    """A task with its whole tree, parents before their children; what all of that has cost."""

    tree: Sequence[Node]
    counts: Mapping[Status, int]
    cost_usd: float
    tokens: int


@router.post("/api/tasks", status_code=202, openapi_extra=json_body(NewTask.model_json_schema()))
async def create(request: Request, site: AtSite, caller: Starter, key: Key = None) -> CreatedTask:
    """Start a tree of tasks; read its result here, it is not sent to a chat."""
    site.rate_limiter.spend(caller.account)
    refuse_source(caller)
    body = validated(NewTask, await request.body())
    key = body.idempotency_key or key
    wanted = ProgramRequest(body.agent, body.input, _label(caller), caller.account, body.budget, key)
    made = await site.trees.control.start(wanted)
    return CreatedTask(made.task, made.status, f"/api/tasks/{made.task}", f"/api/events?master={made.task}")


def _label(caller: Caller) -> Label:
    """Trusted from the owner, known from an admin, else untrusted like a trigger."""
    if caller.as_owner:
        return Label.OWNER
    return Label.KNOWN if Scope.ADMIN in caller.scopes else Label.UNTRUSTED


@router.get("/api/tasks", dependencies=[Depends(needs(Scope.READ))])
async def listed(
    site: AtSite,
    status: Status | None = None,
    agent: Annotated[str | None, Query(max_length=200)] = None,
    text: Annotated[str | None, Query(max_length=200)] = None,
    before: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> list[TreeRow]:
    """List the owner's trees, the newest first; the next page is `before` the last id of this one."""
    wanted = TreeFilter(status, agent, text, TaskId(before) if before else None)
    return await site.database.read(lambda conn: trees.listing(conn, site.owner.id, wanted, limit))


@router.get("/api/tasks/{task_id}")
async def task(
    site: AtSite, caller: Annotated[Caller, Depends(needs(Scope.READ, Scope.TRIGGER))], task_id: UUID
) -> TaskView | TaskReport:
    """Get a task with its tree. A token with only the trigger scope gets the status of its own tasks.

    Otherwise a source could trigger a question about the owner's data and read the answer here.
    """
    reads = permits(caller.scopes, Scope.READ)
    async with site.database.connection() as conn:
        if reads or await triggers.sent_by(conn, TaskId(task_id), caller.account, caller.source):
            report = await tasks.report(conn, TaskId(task_id))
            if report is not None:
                if not reads:
                    return replace(report, result=None, error=None)
                master = (await trees.place(conn, report.id)).master
                return _view(report, await trees.nodes(conn, master), await trees.counts(conn, master, tree=True))
    raise NoSuchTask("There is no such task.")


@router.post("/api/tasks/{task_id}/answer", openapi_extra=json_body(TaskAnswer.model_json_schema()))
async def answer(request: Request, site: AtSite, caller: Starter, task_id: UUID) -> dict[str, str]:
    """Answer, in words, a question of a tree that this token has started; it can't approve calls or budgets."""
    body, by, id = validated(TaskAnswer, await request.body()), caller.account, TaskId(task_id)

    async def settle(tx: Connection) -> ReviewRow | None:
        row = await reviews.get(tx, reviews.number(body.question) or ReviewId(0))
        if row is None or row.tool != FREE_QUESTION or row.task_id is None:
            return None
        own = await triggers.sent_by(tx, id, by, None) and (await trees.place(tx, row.task_id)).master == id
        told = partial(reviews.decide, tx, row.id, row.asked_id, site.clock.now(), label=_label(caller))
        return await told(yes=True, by=f"token:{by}", comment=body.answer) if own else None

    if (row := await site.database.run(settle)) is None:
        raise Refused(409, "not_open", "No question of a task that this token has started waits by that name.")
    await site.topics.refresh()
    return {"answered": row.name}


@router.post("/api/tasks/{task_id}/cancel")
async def cancel(
    site: AtSite, caller: Annotated[Caller, Depends(needs(Scope.TRIGGER))], task_id: UUID
) -> dict[str, Status]:
    """Cancel a task with all below it. A token with only the trigger scope may cancel its own."""
    id, account, read = TaskId(task_id), caller.account, site.database.read
    if Scope.ADMIN in caller.scopes or await read(lambda conn: triggers.sent_by(conn, id, account, None)):
        await site.trees.control.cancel(str(id))
        if found := await read(lambda conn: tasks.get(conn, id)):
            return {"status": found.status}
    raise NoSuchTask("There is no such task.")


def _view(report: TaskReport, nodes: Sequence[Node], counts: Mapping[Status, int]) -> TaskView:
    values = {field.name: getattr(report, field.name) for field in fields(report)}
    cost, tokens = sum(node.cost_usd for node in nodes), sum(node.tokens for node in nodes)
    return TaskView(**values, tree=nodes, counts=counts, cost_usd=cost, tokens=tokens)
