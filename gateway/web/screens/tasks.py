"""Tasks: trees of agents that work in the background; what each of their tasks does, takes, costs, asks and returns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.agent.limits import dollars
from gateway.agent.work import task_trees
from gateway.agent.work.task_trees import NoSuchTask, compare
from gateway.domain.conversation.diff import legible
from gateway.domain.ids import TaskId
from gateway.domain.work.tasks import Status
from gateway.store.connection.pool import Connection
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewRow
from gateway.store.work import steps, tasks, trees
from gateway.store.work.steps import StepRow
from gateway.store.work.trees import NodeRow, TreeFilter, TreeRow
from gateway.web.auth.access import Caller, by_cookie, public, signed_in
from gateway.web.http.errors import Refused
from gateway.web.live.boards import Draw
from gateway.web.live.sse import EventStream
from gateway.web.pages import Nav, Screen
from gateway.web.screens.approvals import questions
from gateway.web.screens.usage import compact
from gateway.web.site import AtSite, Site

SPAN_GROWTH = 1.1
"""By how much the span grows at once while a tree goes on, so that its bars aren't drawn again every second."""


@dataclass(frozen=True, slots=True)
class Bar:
    """`start` and `width` are percents of the tree's span; that of a live task reaches to its end."""

    name: str
    status: Status
    start: float
    width: float
    lasted: str


def bars(nodes: Sequence[NodeRow], now: datetime) -> list[Bar]:
    """One for each task, from when it was made to its end."""
    begin = min(node.created_at for node in nodes)
    ended = all(node.status.final for node in nodes)
    last = max(node.updated_at for node in nodes) if ended else now
    span = max((last - begin).total_seconds(), 0.001)
    if not ended:
        span = SPAN_GROWTH ** math.ceil(math.log(span, SPAN_GROWTH))
    return [_bar(node, begin, span) for node in nodes]


def duration(start: datetime, end: datetime) -> str:
    """In seconds, minutes or hours."""
    seconds = round((end - start).total_seconds())
    minutes, hours = seconds // 60, seconds // 3600
    return f"{seconds} s" if not minutes else f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def _bar(node: NodeRow, begin: datetime, span: float) -> Bar:
    final = node.status.final
    start = 100 * (node.created_at - begin).total_seconds() / span
    end = 100 * (node.updated_at - begin).total_seconds() / span if final else 100
    lasted = duration(node.created_at, node.updated_at) if final else ""
    start = min(start, 99)
    return Bar(node.name, node.status, round(start, 1), round(max(end - start, 1), 1), lasted)


HERE = "/tasks"
TREES = 50
"""Of a page of the list."""
NODES = 200
"""Of a tree; what is more is counted."""
STEPS = 100
"""Of a trace or a comparison at once."""
PINNED = 20
"""Questions on top of a page; the others are in Approvals."""
LONGEST = 20_000
"""Characters of a result."""
OWNER = [Depends(signed_in)]

router = APIRouter()
screen = Screen(Nav(HERE, "Tasks", "list-tree", 6), router)

SignedIn = Annotated[Caller, Depends(signed_in)]


class TreeQuery(BaseModel):
    """Which trees to show; of every status and agent unless it says."""

    model_config = ConfigDict(frozen=True)

    status: Status | Literal[""] = ""
    agent: Annotated[str, Field(max_length=200)] = ""
    text: Annotated[str, Field(max_length=200)] = ""
    before: UUID | None = None


@router.get(HERE, dependencies=[Depends(public)])
async def page(request: Request, site: AtSite, asked: Annotated[TreeQuery, Query()]) -> Response:
    """The latest trees."""
    if await by_cookie(request) is None:
        return RedirectResponse("/login", 303)
    pieces = (await _list(site, asked)).values()
    return site.screen(request, screen.nav, "tasks.html", asked=asked, statuses=list(Status), pieces=pieces)


@router.get(f"{HERE}/events")
async def events(site: AtSite, caller: SignedIn, asked: Annotated[TreeQuery, Query()]) -> Response:
    """The list, and every change of it."""
    frames = site.boards.follow((HERE, asked), lambda: _list(site, asked))
    return EventStream(frames, site.rights.hold(caller.session))


@router.get(f"{HERE}/{{id}}", dependencies=[Depends(public)])
async def tree(request: Request, site: AtSite, id: UUID) -> Response:
    """The whole tree of a task."""
    if await by_cookie(request) is None:
        return RedirectResponse("/login", 303)
    nodes = await _nodes(site, id)
    async with site.backend.database.connection() as conn:
        source = (await tasks.payload(conn, nodes[0].id)).get("forked_from")
    pieces = (await _tree(site, nodes)).values()
    return site.screen(request, screen.nav, "task.html", top=nodes[0], source=source, pieces=pieces)


@router.get(f"{HERE}/{{id}}/events")
async def tree_events(site: AtSite, caller: SignedIn, id: UUID) -> Response:
    """The tree, and every change of it until it is over."""
    await _nodes(site, id)
    return EventStream(site.boards.follow((HERE, id), _watch(site, id)), site.rights.hold(caller.session))


@router.get(f"{HERE}/{{id}}/trace", dependencies=OWNER)
async def trace(site: AtSite, id: UUID, since: Annotated[int, Query(ge=0, lt=2**63)] = 0) -> HTMLResponse:
    """What one task did, behind a step."""
    await _nodes(site, id)
    async with site.backend.database.connection() as conn:
        rows = await steps.trace(conn, TaskId(id), since=since, most=STEPS + 1)
    more = rows[STEPS - 1].id if len(rows) > STEPS else None
    lines = [(row, _step(row)) for row in rows[:STEPS]]
    models = described.chain if (described := site.backend.model()) else ()
    return HTMLResponse(site.pages.part("trace", id, lines, more, since, models))


@router.post(f"{HERE}/{{id}}/cancel", status_code=204, dependencies=OWNER)
async def cancel(site: AtSite, id: UUID) -> None:
    """End a task with all below it; the page learns of it by its events."""
    await site.backend.trees.cancel(str(id))


@router.post(f"{HERE}/{{id}}/fork", dependencies=OWNER)
async def fork(
    site: AtSite,
    id: UUID,
    at: Annotated[int, Query(ge=1, lt=2**63)],
    model: Annotated[str, Form(max_length=200)] = "",
) -> HTMLResponse:
    """Run a task again from one of its model calls, or by another model; what the step's row says then."""
    made = await site.backend.trees.fork(str(id), at, model.strip() or None)
    return HTMLResponse(site.pages.part("forked", id, made))


@router.get(f"{HERE}/{{id}}/compare", dependencies=[Depends(public)])
async def comparison(request: Request, site: AtSite, id: UUID, to: UUID) -> Response:
    """Two tasks, with all below them, side by side."""
    if await by_cookie(request) is None:
        return RedirectResponse("/login", 303)
    async with site.backend.database.connection() as conn:
        try:
            found = await compare(conn, site.backend.owner.id, str(to), str(id))
        except NoSuchTask:
            raise _missing(id) from None
    rows = [[row and (row, _step(row)) for row in pair] for pair in found.rows[:STEPS]]
    runs = [(run, spent(run.cost_usd, run.tokens), text_of(run.node)) for run in (found.a, found.b)]
    more = len(found.rows) - len(rows)
    return site.screen(request, screen.nav, "task_compare.html", runs=runs, rows=rows, same=found.same, more=more)


async def _list(site: Site, asked: TreeQuery) -> Mapping[str, str]:
    before = TaskId(asked.before) if asked.before else None
    wanted = TreeFilter(asked.status or None, asked.agent.strip() or None, asked.text.strip() or None, before)
    async with site.backend.database.connection() as conn:
        rows = await trees.listing(conn, site.backend.owner.id, wanted, TREES + 1)
        waiting = await _waiting(site, conn)
        of_trees = await trees.nodes_among(conn, [row.task_id for row in waiting if row.task_id])
    made: dict[str, str] = {"empty": site.pages.part("no_trees", asked)}
    made |= _pinned(site, [row for row in waiting if row.task_id in of_trees])
    shown = sorted(rows[:TREES], key=lambda row: not row.waits_for)
    made |= {f"t{row.id}": site.pages.part("tree_row", row, _sum(row)) for row in shown}
    if len(rows) > TREES:
        made["older"] = site.pages.part("older_trees", asked, rows[TREES - 1].id)
    return made


async def _waiting(site: Site, conn: Connection) -> list[ReviewRow]:
    return await reviews.list_open(conn, site.backend.owner.id, site.backend.clock.now())


def _pinned(site: Site, rows: Sequence[ReviewRow]) -> dict[str, str]:
    """Questions of trees, to be answered on top of the page."""
    if not rows:
        return {}
    return {"asked": site.pages.part("tree_asks", len(rows) - PINNED), **questions(site, rows[:PINNED], {})}


async def _nodes(site: Site, id: UUID) -> Sequence[NodeRow]:
    """The tree of a task of the owner's."""
    async with site.backend.database.connection() as conn:
        try:
            return await task_trees.show(conn, site.backend.owner.id, str(id))
        except NoSuchTask:
            raise _missing(id) from None


def _watch(site: Site, id: UUID) -> Draw:
    """Draws a tree until it is over, and the same then."""
    last: Mapping[str, str] = {}
    over = False

    async def draw() -> Mapping[str, str]:
        nonlocal last, over
        if not over:
            nodes = await _nodes(site, id)
            last, over = await _tree(site, nodes), all(node.status.final for node in nodes)
        return last

    return draw


async def _tree(site: Site, nodes: Sequence[NodeRow]) -> Mapping[str, str]:
    part, ordered, ids = site.pages.part, _outline(nodes), {node.id for node in nodes}
    cost = spent(sum(node.cost_usd for node in nodes), sum(node.tokens for node in nodes))
    over = sum(node.status.final for node in nodes)
    async with site.backend.database.connection() as conn:
        asked = [row for row in await _waiting(site, conn) if row.task_id in ids]
    made: dict[str, str] = {"sum": part("tree_sum", nodes[0], over, len(nodes), cost)}
    made |= _pinned(site, asked)
    if len(nodes) > 1:
        made["timeline"] = part("timeline", bars(ordered[:NODES], site.backend.clock.now()))
    for node in ordered[:NODES]:
        made[f"n{node.id}"] = part("node", node, _about(node), text_of(node))
    if more := ordered[NODES:]:
        made["rest"] = part("more_nodes", len(more), sum(not node.status.final for node in more))
    return made


def _outline(nodes: Sequence[NodeRow]) -> list[NodeRow]:
    """Each followed by all below it."""
    below: dict[TaskId | None, list[NodeRow]] = {}
    known = {node.id for node in nodes}
    for node in nodes:
        below.setdefault(node.parent_id if node.parent_id in known else None, []).append(node)
    ordered, open_ = list[NodeRow](), below[None][::-1]
    while open_:
        ordered.append(node := open_.pop())
        open_ += reversed(below.get(node.id, []))
    return ordered


def _sum(row: TreeRow) -> str:
    over, number = sum(count for status, count in row.counts.items() if status.final), sum(row.counts.values())
    done = f"{over} of {number} tasks over · " if number > 1 else ""
    return f"{done}{spent(row.cost_usd, row.tokens)}"


def _about(node: NodeRow) -> str:
    cost = spent(node.cost_usd, node.tokens) if node.tokens or node.cost_usd else ""
    lasted = duration(node.created_at, node.updated_at) if node.status.final else ""
    return " · ".join(filter(None, (cost, lasted)))


def _step(row: StepRow) -> str:
    """What a step took, if it took anything."""
    cost = spent(row.cost_usd, row.tokens_in + row.tokens_out) if row.kind == "model" else ""
    return " · ".join(filter(None, (cost, f"{row.latency_ms:,} ms" if row.latency_ms else "")))


def spent(usd: float, tokens: int) -> str:
    """Cost and tokens, in words."""
    return f"{dollars(usd)} · {compact(tokens)} tokens"


def text_of(node: NodeRow) -> str:
    """Its result or its error, which others may have written."""
    text = node.error or node.result or ""
    return legible(text[:LONGEST]) + (" … (longer)" if len(text) > LONGEST else "")


def _missing(id: UUID) -> Refused:
    return Refused(404, "not_found", f"There is no task {id}.")
