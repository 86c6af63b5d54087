"""Tasks: trees of agents that work in the background, with the steps, cost, questions and result of each task."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Literal
from uuid import UUID

from fastapi import Depends, Form, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.agent.limits import dollars
from gateway.agent.work import task_trees
from gateway.agent.work.task_trees import compare
from gateway.domain.conversation.diff import legible
from gateway.domain.ids import MessageId, TaskId
from gateway.domain.principals import Label
from gateway.domain.text.texts import compact
from gateway.domain.work.tasks import Status
from gateway.domain.work.todo_lists import TodoList
from gateway.domain.work.trees import LONGEST_INPUT, MAIN
from gateway.flow.trees.control import ProgramRequest
from gateway.store.connection.pool import Connection
from gateway.store.transcript import conversations, messages
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewRow
from gateway.store.work import steps, tasks, todo_lists, trees
from gateway.store.work.steps import TraceFilter
from gateway.store.work.trees import NodeRow, TreeFilter, TreeRow
from gateway.web.auth.access import OWNER, VISITOR, SignedIn
from gateway.web.http.bodies import Text
from gateway.web.http.errors import Refused
from gateway.web.live.entries import question_cards
from gateway.web.live.sse import Draw, EventStream
from gateway.web.markup.markdown import Markdown
from gateway.web.pages import Screen
from gateway.web.site import AtSite, RowId, Site
from gateway.web.trace import clipped, contents, seconds, spans, step_words

SPAN_GROWTH = 1.1
"""The factor by which the span grows while a tree runs, so that its bars aren't redrawn every second."""


@dataclass(frozen=True, slots=True)
class Bar:
    """`start` and `width` are percents of the tree's span; that of a live task reaches to its end."""

    name: str
    status: Status
    start: float
    width: float
    lasted: str


def bars(nodes: Sequence[NodeRow], now: datetime) -> list[Bar]:
    """A bar for each task, from its creation to its end."""
    begin = min(node.created_at for node in nodes)
    ended = all(node.status.final for node in nodes)
    last = max(node.updated_at for node in nodes) if ended else now
    span = max((last - begin).total_seconds(), 0.001)
    if not ended:
        span = SPAN_GROWTH ** math.ceil(math.log(span, SPAN_GROWTH))
    return [_bar(node, begin, span) for node in nodes]


def _bar(node: NodeRow, begin: datetime, span: float) -> Bar:
    final = node.status.final
    start = min(100 * (node.created_at - begin).total_seconds() / span, 99)
    end = 100 * (node.updated_at - begin).total_seconds() / span if final else 100
    lasted = seconds((node.updated_at - node.created_at).total_seconds()) if final else ""
    return Bar(node.name, node.status, round(start, 1), round(max(end - start, 1), 1), lasted)


HERE = "/tasks"
TREES = 50
"""Trees of a page of the list."""
NODES = 200
"""Tasks of a tree that are shown; the others are counted."""
STEPS = 100
"""Steps of one page of a trace or a comparison."""
PINNED = 20
"""Questions on top of a page; the others are in Approvals."""
screen = Screen(HERE, "Tasks", "list-tree", 20)


class TreeQuery(BaseModel):
    """The trees to show; empty fields match all."""

    model_config = ConfigDict(frozen=True)

    status: Status | Literal[""] = ""
    agent: Annotated[str, Field(max_length=200)] = ""
    text: Annotated[str, Field(max_length=200)] = ""
    before: UUID | None = None
    sort: Literal["newest", "cost", "changed"] = "newest"

    def sorted(self, rows: Sequence[TreeRow]) -> list[TreeRow]:
        """The rows of one page by state, within that as asked for."""
        keys = {"newest": attrgetter("created_at"), "cost": attrgetter("cost_usd"), "changed": attrgetter("updated_at")}
        return sorted(sorted(rows, key=keys[self.sort], reverse=True), key=lambda row: list(GROUPS).index(_group(row)))


GROUPS = {
    "Waits for you": (Status.NEEDS_HUMAN_REVIEW,),
    "Under way": (Status.RUNNING, Status.PENDING, Status.PENDING_SUBTASK),
    "Failed": (Status.FAILED,),
    "Done": (Status.COMPLETED,),
    "Cancelled": (Status.CANCELLED,),
}


def _group(row: TreeRow) -> str:
    return next(name for name, states in GROUPS.items() if row.waits_for or row.status in states)


async def _nodes(site: AtSite, id: UUID) -> Sequence[NodeRow]:
    """The tree of a task of the owner; raises `NoSuchTask`."""
    return await site.database.read(lambda conn: task_trees.show(conn, site.owner.id, str(id)))


Nodes = Annotated[Sequence[NodeRow], Depends(_nodes)]


@screen.get(HERE, dependencies=VISITOR)
async def page(request: Request, site: AtSite, query: Annotated[TreeQuery, Query()]) -> Response:
    """The latest trees."""
    pieces, agents = (await _list(site, query)).values(), await site.trees.agents.usable()
    shown = {"asked": query, "statuses": list(Status), "agents": agents, "pieces": pieces}
    return site.screen(request, screen, "tasks.html", longest=LONGEST_INPUT, **shown)


@screen.post(HERE, status_code=204)
async def start(
    site: AtSite,
    caller: SignedIn,
    input: Annotated[Text, Form(max_length=LONGEST_INPUT, pattern=r"\S")],
    agent: Annotated[str, Form(max_length=200)] = MAIN,
    budget: Annotated[float | None, Form(gt=0)] = None,
) -> None:
    """Start a tree in the owner's name; the page shows its result, which goes to no chat."""
    site.rate_limiter.spend(caller.account)
    await site.trees.control.start(ProgramRequest(agent, input, Label.OWNER, caller.account, budget))


@screen.get(f"{HERE}/events")
async def events(site: AtSite, caller: SignedIn, query: Annotated[TreeQuery, Query()]) -> Response:
    """The list, then every change."""
    frames = site.boards.follow((HERE, query), lambda: _list(site, query))
    return EventStream(frames, site.rights.hold(caller.session))


@screen.get(f"{HERE}/{{id}}", dependencies=VISITOR)
async def tree(request: Request, site: AtSite, nodes: Nodes) -> Response:
    """The whole tree of a task."""
    payload = await site.database.read(lambda conn: tasks.payload(conn, nodes[0].id))
    shown = {"source": payload.get("forked_from"), "pieces": (await _tree(site, nodes, Markdown())).values()}
    return site.screen(request, screen, "task.html", top=nodes[0], **shown)


@screen.get(f"{HERE}/{{id}}/events", dependencies=[Depends(_nodes)])
async def tree_events(site: AtSite, caller: SignedIn, id: UUID) -> Response:
    """The tree, then every change until it is over."""
    return EventStream(site.boards.follow((HERE, id), _watch(site, id)), site.rights.hold(caller.session))


@screen.get(f"{HERE}/{{id}}/trace", dependencies=OWNER)
async def trace(
    site: AtSite,
    id: UUID,
    since: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    q: Annotated[Text, Query(max_length=200)] = "",
) -> HTMLResponse:
    """The steps of one task after `since` with these words, as bars on one time axis."""
    node = next(node for node in await _nodes(site, id) if node.id == id)
    rows = await site.database.read(lambda conn: steps.spans(conn, node.id, TraceFilter(since, q.strip()), STEPS + 1))
    more = rows[STEPS - 1].id if len(rows) > STEPS else None
    lines, models = spans(rows[:STEPS], node.created_at), site.settings.model()
    return HTMLResponse(site.pages.part("trace", id, lines, more, since, models.chain if models else (), q))


@screen.get(f"{HERE}/steps/{{step}}", dependencies=OWNER)
async def step(site: AtSite, step: RowId) -> HTMLResponse:
    """The texts of a step: arguments and result of a call, thought and words of a model, each with its trust."""
    async with site.database.connection() as conn:
        rows, owner = await steps.contents(conn, site.owner.id, step), site.owner.id
        thought = await conversations.thought(conn, owner, rows[0].id) if rows else None
    return HTMLResponse(site.pages.part("step_contents", contents(rows, thought)))


@screen.get("/turns/{message}", dependencies=VISITOR)
async def turn(request: Request, site: AtSite, message: RowId) -> Response:
    """How an answer was made: the trace of its turn."""
    async with site.database.connection() as conn:
        answer = await messages.get(conn, MessageId(message))
        if answer is None or answer.task_id is None or answer.principal_id != site.owner.id:
            raise Refused(404, "not_found", f"There is no answer {message}.")
        begin = await messages.asked_at(conn, answer.id)
        rows = await steps.spans(conn, answer.task_id, TraceFilter(begin=begin, end=answer.created_at), STEPS)
    cost = spent(sum(row.cost_usd for row in rows), sum(row.tokens_in + row.tokens_out for row in rows))
    return site.screen(request, screen, "turn.html", answer=answer, lines=spans(rows, begin), cost=cost)


@screen.post(f"{HERE}/{{id}}/cancel", status_code=204, dependencies=[*OWNER, Depends(_nodes)])
async def cancel(site: AtSite, id: UUID) -> None:
    """Cancel a task with all below it; the page is updated by its events."""
    await site.trees.control.cancel(str(id))


@screen.post(f"{HERE}/{{id}}/fork", dependencies=[*OWNER, Depends(_nodes)])
async def fork(
    site: AtSite, id: UUID, at: Annotated[int, Query(ge=1, lt=2**63)], model: Annotated[str, Form(max_length=200)] = ""
) -> HTMLResponse:
    """Run a task again from one of its model calls, perhaps by another model; returns the step's new row."""
    made = await site.trees.control.fork(str(id), at, model.strip() or None)
    return HTMLResponse(site.pages.part("forked", id, made))


@screen.get(f"{HERE}/{{id}}/compare", dependencies=VISITOR)
async def comparison(request: Request, site: AtSite, id: UUID, to: UUID) -> Response:
    """Two tasks, with all below them, side by side."""
    found = await site.database.read(lambda conn: compare(conn, site.owner.id, str(to), str(id)))
    rows = [[row and (row, step_words(row)) for row in pair] for pair in found.rows[:STEPS]]
    runs = [(run, spent(run.cost_usd, run.tokens), text_of(run.node)) for run in (found.a, found.b)]
    more = len(found.rows) - len(rows)
    return site.screen(request, screen, "task_compare.html", runs=runs, rows=rows, same=found.same, more=more)


async def _list(site: Site, query: TreeQuery) -> Mapping[str, str]:
    before = TaskId(query.before) if query.before else None
    wanted = TreeFilter(query.status or None, query.agent.strip() or None, query.text.strip() or None, before)
    async with site.database.connection() as conn:
        rows = await trees.listing(conn, site.owner.id, wanted, TREES + 1)
        waiting = await reviews.list_open(conn, site.owner.id, site.clock.now())
        of_trees = await trees.nodes_among(conn, [row.task_id for row in waiting if row.task_id])
        todo = await _todo(site, conn)
    made: dict[str, str] = {"empty": site.pages.part("no_trees", query)}
    made |= _pinned(site, [row for row in waiting if row.task_id in of_trees])
    for name, group in groupby(query.sorted(rows[:TREES]), _group):
        id = name.replace(" ", "-")
        made[id] = site.pages.part("heading", id, name)
        made |= {f"t{row.id}": site.pages.part("tree_row", row, _sum(row), todo.get(row.id)) for row in group}
    if len(rows) > TREES:
        made["older"] = site.pages.part("older_trees", query, rows[TREES - 1].id)
    return made


async def _todo(site: Site, conn: Connection) -> Mapping[TaskId, TodoList]:
    return {each.task: each for each in await todo_lists.live(conn, site.owner.id) if each.steps}


def _pinned(site: Site, rows: Sequence[ReviewRow]) -> dict[str, str]:
    """Open questions of trees, for the top of the page."""
    if not rows:
        return {}
    return {"asked": site.pages.part("tree_asks", len(rows) - PINNED), **question_cards(site.pages, rows[:PINNED], {})}


def _watch(site: Site, id: UUID) -> Draw:
    """A function that draws a tree; it reads nothing once the tree is over."""
    last: Mapping[str, str] = {}
    over, markdown = False, Markdown()

    async def draw() -> Mapping[str, str]:
        nonlocal last, over
        if not over:
            nodes = await _nodes(site, id)
            last, over = await _tree(site, nodes, markdown), all(node.status.final for node in nodes)
        return last

    return draw


async def _tree(site: Site, nodes: Sequence[NodeRow], markdown: Markdown) -> Mapping[str, str]:
    part, ordered, ids = site.pages.part, _outline(nodes), {node.id for node in nodes}
    cost = spent(sum(node.cost_usd for node in nodes), sum(node.tokens for node in nodes))
    over = sum(node.status.final for node in nodes)
    async with site.database.connection() as conn:
        waiting, todo = await reviews.list_open(conn, site.owner.id, site.clock.now()), await _todo(site, conn)
    await markdown.prepare([text_of(node) for node in ordered[:NODES]])
    made: dict[str, str] = {"sum": part("tree_sum", nodes[0], over, len(nodes), cost)}
    made |= _pinned(site, [row for row in waiting if row.task_id in ids])
    if len(nodes) > 1:
        made["timeline"] = part("timeline", bars(ordered[:NODES], site.clock.now()))
    for node in ordered[:NODES]:
        text = text_of(node) if node.error else markdown.html(text_of(node))
        made[f"n{node.id}"] = part("node", node, _about(node), text, todo.get(node.id))
    if more := ordered[NODES:]:
        made["rest"] = part("more_nodes", len(more), sum(not node.status.final for node in more))
    return made


def _outline(nodes: Sequence[NodeRow]) -> list[NodeRow]:
    """The tasks in order, each followed by all below it."""
    below: dict[TaskId | None, list[NodeRow]] = {}
    ids = {node.id for node in nodes}
    for node in nodes:
        below.setdefault(node.parent_id if node.parent_id in ids else None, []).append(node)
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
    lasted = seconds((node.updated_at - node.created_at).total_seconds()) if node.status.final else ""
    return " · ".join(filter(None, (cost, lasted)))


def spent(usd: float, tokens: int) -> str:
    """Cost and tokens, in words."""
    return f"{dollars(usd)} · {compact(tokens)} tokens"


def text_of(node: NodeRow) -> str:
    """The result or the error of a task; it may contain other people's text."""
    return legible(clipped(node.error or node.result or ""))
