"""Trees of tasks: start, show, cancel, retry, fork and compare them; and the tools of every node."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest
from typing import TypeAlias, TypedDict, Unpack
from uuid import NAMESPACE_OID, uuid4, uuid5

from pydantic import ValidationError

from gateway.agent.limits import dollars
from gateway.agent.tool_sources import explained_arguments, parameters_of
from gateway.agent.work.agents import Agents
from gateway.config.model import BudgetSettings
from gateway.domain.conversation.model import ToolSpec
from gateway.domain.conversation.tools import ToolArguments
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import AddressId, PrincipalId, SessionId, TaskId
from gateway.domain.principals import Label
from gateway.domain.text.texts import clipped
from gateway.domain.work.tasks import Assignment, Lane, Status
from gateway.domain.work.trees import (
    LONGEST_NAME,
    MOST_SHARING,
    CompleteTask,
    CreateSubtask,
    Handoff,
    LoadSkill,
    RequestHumanReview,
    SaveIntermediateData,
)
from gateway.store.connection.pool import Connection
from gateway.store.transcript import conversations, sessions, tool_calls
from gateway.store.trust import reviews
from gateway.store.work import steps, tasks, trees
from gateway.store.work.steps import StepRow
from gateway.store.work.trees import NodeRow

TASK = "task"
"""The origin of a node."""
SHORT = 8
"""Characters of an id that people are shown."""
ORDERS = """\
This is a task that you work on in the background. Nobody reads along or can answer a question in between; \
request_human_review asks a person. Your last answer, or complete_task, is the result. Write it in the task's language.

The task:"""


class NoSuchAgent(OwnerMustAct):
    """There is no active agent with this slug, or its file is invalid."""

    code = "unknown_agent"


class NoSuchTask(OwnerMustAct):
    """No task has this id, or several do."""

    code = "not_found"


class TooManyTasks(OwnerMustAct):
    """The person or the conversation has the most unfinished trees allowed."""

    code = "too_many"


_SHARED = f"what others' words may start: {MOST_SHARING}, for the money of one run. Cancel one, or give each a budget."


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """The most that the trees under way of a conversation with others' words may cost together; None: any amount."""

    session: SessionId
    usd: float | None

    async def left(self, tx: Connection, wanted: float | None) -> float | None:
        """The budget of one more tree; raises `TooManyTasks`."""
        number, taken = await trees.started_in(tx, self.session)
        if number >= MOST_SHARING or (self.usd is not None and taken >= self.usd):
            raise TooManyTasks(f"{number} tasks of this conversation use up {_SHARED}")
        return wanted if self.usd is None else min(self.usd - taken, self.usd if wanted is None else wanted)


@dataclass(frozen=True, slots=True)
class TreeRequest:
    """The task of a new tree. A request with a known `key` starts no second tree; `budget_usd` None: no limit.

    `most_live` is the number of unfinished trees its person may have; None: any number, and their trees go first.
    `shared` is the budget of all trees of its conversation; None: of a person, or of a conversation of trusted words.
    """

    agent: str
    input: str
    label: Label
    budget_usd: float | None
    private: bool
    key: str | None = None
    address: AddressId | None = None
    deliver: bool = True
    most_live: int | None = field(kw_only=True)
    shared: SharedBudget | None = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Trees:
    """The agents that can be given a tree, and the most that a run or a tree may cost."""

    agents: Agents
    budgets: Callable[[], BudgetSettings]

    def within(self, wanted: float | None) -> float | None:
        """The budget of a tree: the wanted one, capped by the configured one."""
        most = self.budgets().task_usd
        return most if wanted is None else wanted if most is None else min(wanted, most)

    async def check(self, agent: str, label: Label) -> None:
        """Raise `NoSuchAgent` if this agent can't work now; the text may name those that suit a run with this label."""
        if agent not in [each.slug for each in await self.agents.usable()]:
            known = ", ".join(each.slug for each in await self.agents.offered(label))
            raise NoSuchAgent(f"There is no agent {agent[:80]!r}; there are {known}.")


def node_assignment(
    text: str,
    label: Label,
    *,
    private: bool,
    address: AddressId | None = None,
    call: int | None = None,
    fork: TaskId | None = None,
) -> Assignment:
    """The work of one node; only the result of the top node is sent to a chat."""
    return Assignment(
        prompt=f"{ORDERS}\n{text}",
        name=clipped(text, LONGEST_NAME),
        origin=TASK,
        label=label,
        deliver=call is None,
        address=address,
        private=private,
        call=call,
        fork=fork,
    )


class Queueing(TypedDict, total=False):
    """As in `tasks.create`."""

    id: TaskId | None
    parent: TaskId
    agent: str
    budget_usd: float | None
    priority: int
    dedupe: str


async def queue(
    tx: Connection, principal: PrincipalId, work: Assignment, session: SessionId, **more: Unpack[Queueing]
) -> TaskId | None:
    """Queue a run of an agent; None if there is one like it."""
    payload = work.model_dump(mode="json")
    return await tasks.create(tx, principal, "agent", Lane.AGENTS, payload=payload, session=session, **more)


def top_task(principal: PrincipalId, key: str) -> TaskId:
    """The top task of the tree that a request with this key starts."""
    return TaskId(uuid5(NAMESPACE_OID, f"supaclaw.tree {principal} {key}"))


async def start(tx: Connection, principal: PrincipalId, request: TreeRequest) -> TaskId:
    """Queue the top task of a tree, or return that of the same key; raises `TooManyTasks`."""
    id = None if request.key is None else top_task(principal, request.key)
    work = node_assignment(request.input, request.label, private=request.private, address=request.address)
    sharing, budget = request.shared, request.budget_usd
    work = work.model_copy(update={"deliver": request.deliver, "started_in": sharing and sharing.session})
    if id is not None and await tasks.get(tx, id):
        return id
    if request.most_live is not None and await trees.live(tx, principal) >= request.most_live:
        raise TooManyTasks(f"{request.most_live} tasks are under way already; wait for one, or cancel one.")
    if sharing is not None:
        budget = await sharing.left(tx, budget)
    session = await sessions.start(tx, principal, request.label, unattended=True)
    priority = 0 if request.most_live is None else -1
    made = await queue(tx, principal, work, session, id=id, agent=request.agent, budget_usd=budget, priority=priority)
    made = made or id
    assert made is not None, "only a task with a key can exist already"
    return made


async def find_task(tx: Connection, principal: PrincipalId, which: str) -> TaskId:
    """The person's task whose id starts with `which`; raises `NoSuchTask`."""
    found = await trees.matching(tx, principal, which.strip().lower())
    if len(found) != 1:
        raise NoSuchTask("Give more of the id." if found else "There is no task with that id; a list shows their ids.")
    return found[0]


async def show(tx: Connection, principal: PrincipalId, which: str) -> Sequence[NodeRow]:
    """The whole tree of a task; raises `NoSuchTask`."""
    return await trees.nodes(tx, await trees.master_of(tx, await find_task(tx, principal, which)))


async def node(tx: Connection, principal: PrincipalId, which: str) -> NodeRow:
    """One task; raises `NoSuchTask`."""
    task = await find_task(tx, principal, which)
    return next(row for row in await trees.nodes(tx, (await trees.place(tx, task)).master) if row.id == task)


async def cancel(tx: Connection, principal: PrincipalId, which: str) -> tuple[TaskId, Sequence[TaskId]]:
    """Cancel a task with all below it; returns it, and the tasks that were running. Raises `NoSuchTask`."""
    task = await find_task(tx, principal, which)
    running = await tasks.cancel(tx, task)
    await reviews.close_cancelled(tx, (await trees.place(tx, task)).master)
    return task, running


async def retry(tx: Connection, principal: PrincipalId, which: str, most_live: int | None) -> TaskId:
    """Start a failed or cancelled tree again, once for each failure; raises `NoSuchTask` and `TooManyTasks`."""
    old = (await trees.place(tx, await find_task(tx, principal, which))).master
    [top, *_] = await trees.nodes(tx, old)
    if top.status not in (Status.FAILED, Status.CANCELLED):
        raise NoSuchTask("That task hasn't failed, so there is nothing to try again.")
    work = Assignment.model_validate(await tasks.payload(tx, old))
    text = work.prompt.removeprefix(f"{ORDERS}\n")
    key = f"retry {old}"
    request = TreeRequest(
        top.agent, text, work.label, top.budget_usd, work.private, key, work.address, most_live=most_live, shared=None
    )
    return await start(tx, principal, request)


def task_line(row: NodeRow) -> str:
    """A task on one line, indented by its depth."""
    waits = f", waits for {row.waits_for}" if row.waits_for else ""
    return f"{'  ' * row.depth}{str(row.id)[:SHORT]} {row.name} ({row.agent}): {row.status.value}{waits}"


def tree_summary(rows: Sequence[NodeRow]) -> str:
    """The progress and the cost of a tree."""
    over = sum(row.status.final for row in rows)
    limit = rows[0].budget_usd
    of = "" if limit is None else f" of {dollars(limit)}"
    return f"{over} of {len(rows)} tasks are over; {dollars(sum(row.cost_usd for row in rows))}{of} used."


async def fork(tx: Connection, principal: PrincipalId, which: str, at: int, model: str | None = None) -> TaskId:
    """Queue a tree that continues from the model call at step `at`, or the last one before; raises `NoSuchTask`.

    The fork reads the transcript until then, with its labels, and repeats the model call. It has none of the task's
    grants, asks before every act, and writes to a copy of the workspace. Its result is not sent to a chat.
    """
    source = await find_task(tx, principal, which)
    before = Assignment.model_validate(await tasks.payload(tx, source))
    place = await steps.asked_at(tx, source, at)
    asked = before.asked or await tool_calls.prompt_of(tx, source)
    if place is None or asked is None:
        message = f"The task has no model call at or before a step {at}; `supaclaw tasks trace` lists its steps."
        raise NoSuchTask(message)
    label = await sessions.label(tx, place.session)
    session = await conversations.start_branch(tx, principal, place.session, place.seq, before.label, unattended=True)
    if session is None:
        raise NoSuchTask("That is a fork of too many forks; fork an earlier one.")
    made = TaskId(uuid4())
    changes = {"fork": made, "forked_from": source, "asked": asked, "model": model, "deliver": False, "call": None}
    work = before.model_copy(update={**changes, "label": max(before.label, label)})
    budget = (await trees.place(tx, source)).budget_usd
    await queue(tx, principal, work, session, id=made, agent=place.agent, budget_usd=budget)
    return made


MOST_STEPS = 5_000
"""Steps of each run."""


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One of two compared tasks, with all below it."""

    node: NodeRow
    steps: Sequence[StepRow]
    tasks: int
    cost_usd: float
    tokens: int
    model_ms: int
    """The sum of the times of its models and tools."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side; a row has None where one has no more steps. The first `same` rows are alike."""

    a: ComparedRun
    b: ComparedRun
    rows: Sequence[tuple[StepRow | None, StepRow | None]]
    same: int


async def compare(conn: Connection, principal: PrincipalId, a: str, b: str) -> Comparison:
    """Compare two runs by the beginnings of their ids; a fork has only its own steps. Raises `NoSuchTask`."""
    one, other = await _run(conn, principal, a), await _run(conn, principal, b)
    rows = list(zip_longest(one.steps, other.steps))
    same = sum(1 for _ in takewhile(lambda pair: _alike(*pair), rows))
    return Comparison(one, other, rows, same)


async def _run(conn: Connection, principal: PrincipalId, which: str) -> ComparedRun:
    task = await find_task(conn, principal, which)
    whole = await trees.nodes(conn, (await trees.place(conn, task)).master)
    below = {task}
    for node in whole:  # parents come before their children
        if node.parent_id in below:
            below.add(node.id)
    nodes = [node for node in whole if node.id in below]
    master = whole[0].id
    trace = [step for step in await steps.trace(conn, master, tree=True, most=MOST_STEPS) if step.task_id in below]
    cost, tokens = sum(node.cost_usd for node in nodes), sum(node.tokens for node in nodes)
    return ComparedRun(nodes[0], trace, len(nodes), cost, tokens, sum(step.latency_ms for step in trace))


def _alike(a: StepRow | None, b: StepRow | None) -> bool:
    return a is not None and b is not None and (a.kind, a.name, a.ok) == (b.kind, b.name, b.ok)


SystemCall: TypeAlias = CreateSubtask | Handoff | RequestHumanReview | SaveIntermediateData | CompleteTask | LoadSkill

_TOOLS: Mapping[str, type[SystemCall]] = {
    "create_subtask": CreateSubtask,
    "handoff": Handoff,
    "request_human_review": RequestHumanReview,
    "save_intermediate_data": SaveIntermediateData,
    "complete_task": CompleteTask,
    "load_skill": LoadSkill,
}

SYSTEM_TOOL_SPECS = tuple(
    ToolSpec(name, " ".join((arguments.__doc__ or "").split()), parameters_of(arguments), Label.OWNER)
    for name, arguments in _TOOLS.items()
)


class BadSystemCall(Exception):
    """The arguments can't be used; the text is for the model."""


def parse_system_call(tool: str, arguments: str) -> SystemCall:
    """The parsed arguments of a system tool; raises `BadSystemCall`."""
    model: type[ToolArguments] = _TOOLS[tool]
    try:
        found = model.model_validate_json(arguments.strip() or "{}")
    except ValidationError as error:
        raise BadSystemCall(explained_arguments(tool, model, error)) from error
    assert isinstance(found, SystemCall), "`_TOOLS` has only these"
    return found
