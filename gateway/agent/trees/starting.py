"""Trees are started, shown, cancelled and tried again in one way: by the chat's agent, a command or a program."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import NAMESPACE_OID, uuid5

from gateway.agent.limits import dollars
from gateway.agent.trees.agents import Agents
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import AddressId, PrincipalId, TaskId
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line
from gateway.domain.work.assignment import Assignment
from gateway.domain.work.tasks import Lane, Status
from gateway.domain.work.trees import LONGEST_NAME
from gateway.store import sessions
from gateway.store.connection.pool import Connection
from gateway.store.engine import tasks, trees
from gateway.store.engine.trees import NodeRow
from gateway.store.trust import reviews

TASK = "task"
"""The origin of a node."""
SHORT = 8
"""Characters of an id that people are shown."""
ORDERS = """\
This is a task that you work on in the background. Nobody reads along or can answer a question in between; \
request_human_review asks a person. Your last answer, or complete_task, is the result. Write it in the task's language.

The task:"""


class NoSuchAgent(OwnerMustAct):
    """No agent has this slug, or its file is wrong or switched off."""


class NoSuchTask(OwnerMustAct):
    """The id names none, or more than one."""


class TooManyTasks(OwnerMustAct):
    """A person has as many unfinished trees as they may have."""


@dataclass(frozen=True, slots=True)
class TreeRequest:
    """What a tree is to do. `key` makes a repeated request the same one; `budget_usd` None: no limit.

    `most_live` is how many unfinished trees its person may have, behind those who may have any number (None).
    """

    agent: str
    input: str
    label: Label
    budget_usd: float | None
    private: bool
    key: str | None = None
    address: AddressId | None = None
    deliver: bool = True
    most_live: int | None = None


@dataclass(frozen=True, slots=True)
class Trees:
    """What starting a tree takes besides the database: the agents, and what a tree may cost if nothing is said."""

    agents: Agents
    budget_usd: Callable[[], float | None]

    def within(self, wanted: float | None) -> float | None:
        """The budget of a tree: what was asked for, but no more than the configured one."""
        most = self.budget_usd()
        return most if wanted is None else wanted if most is None else min(wanted, most)

    async def check(self, agent: str) -> None:
        """Raise `NoSuchAgent` if it can't work now."""
        known = [each.slug for each in await self.agents.usable()]
        if agent not in known:
            raise NoSuchAgent(f"There is no agent {agent[:80]!r}; there are {', '.join(known)}.")


def node(
    text: str,
    label: Label,
    *,
    private: bool,
    address: AddressId | None = None,
    call: int | None = None,
    fork: TaskId | None = None,
) -> Assignment:
    """The work of one node; only the first one of a tree is told in a chat."""
    return Assignment(
        prompt=f"{ORDERS}\n{text}",
        name=one_line(text, LONGEST_NAME),
        origin=TASK,
        label=label,
        deliver=call is None,
        address=address,
        private=private,
        call=call,
        fork=fork,
    )


async def start(tx: Connection, principal: PrincipalId, request: TreeRequest) -> TaskId:
    """Queue the first task of a tree, or answer the one of the same key; raises `TooManyTasks`."""
    id = None if request.key is None else TaskId(uuid5(NAMESPACE_OID, f"supaclaw.tree {principal} {request.key}"))
    work = node(request.input, request.label, private=request.private, address=request.address)
    work = work.model_copy(update={"deliver": request.deliver})
    if id is not None and await tasks.get(tx, id):
        return id
    if request.most_live is not None and await trees.live(tx, principal) >= request.most_live:
        raise TooManyTasks(f"{request.most_live} tasks are under way already; wait for one, or cancel one.")
    session = await sessions.start(tx, principal, request.label, unattended=True)
    made = await tasks.create(
        tx,
        principal,
        "agent",
        Lane.AGENTS,
        payload=work.model_dump(mode="json"),
        session=session,
        id=id,
        agent=request.agent,
        budget_usd=request.budget_usd,
        priority=0 if request.most_live is None else -1,
    )
    known = made or id
    assert known is not None, "only a repeated key is met again"
    return known


async def find(tx: Connection, principal: PrincipalId, which: str) -> TaskId:
    """The person's task whose id begins so; raises `NoSuchTask`."""
    found = await trees.matching(tx, principal, which.strip().lower())
    if len(found) != 1:
        raise NoSuchTask("There is no task with that id; /tasks lists them." if not found else "Give more of the id.")
    return found[0]


async def show(tx: Connection, principal: PrincipalId, which: str) -> Sequence[NodeRow]:
    """The whole tree of a task; raises `NoSuchTask`."""
    place = await trees.place(tx, await find(tx, principal, which))
    return await trees.nodes(tx, place.master)


async def cancel(tx: Connection, principal: PrincipalId, which: str) -> tuple[TaskId, Sequence[TaskId]]:
    """End a task with all below it; the task, and what was running. Raises `NoSuchTask`."""
    task = await find(tx, principal, which)
    running = await tasks.cancel(tx, task)
    await reviews.close_cancelled(tx, (await trees.place(tx, task)).master)
    return task, running


async def retry(tx: Connection, principal: PrincipalId, which: str, most_live: int | None = None) -> TaskId:
    """A failed or cancelled tree from its beginning, once for each try; raises `NoSuchTask` and `TooManyTasks`."""
    old = (await trees.place(tx, await find(tx, principal, which))).master
    [top, *_] = await trees.nodes(tx, old)
    if top.status not in (Status.FAILED, Status.CANCELLED):
        raise NoSuchTask("That task hasn't failed, so there is nothing to try again.")
    work = Assignment.model_validate(await tasks.payload(tx, old))
    text = work.prompt.removeprefix(f"{ORDERS}\n")
    key = f"retry {old}"
    request = TreeRequest(
        top.agent, text, work.label, top.budget_usd, work.private, key, work.address, most_live=most_live
    )
    return await start(tx, principal, request)


def line(row: NodeRow) -> str:
    """One task, as a chat shows it."""
    waits = f", waits for {row.waits_for}" if row.waits_for else ""
    return f"{'  ' * row.depth}{str(row.id)[:SHORT]} {row.name} ({row.agent}): {row.status.value}{waits}"


def summary(rows: Sequence[NodeRow]) -> str:
    """How many tasks of a tree are over, and what it has cost."""
    over = sum(row.status.final for row in rows)
    limit = rows[0].budget_usd
    of = "" if limit is None else f" of {dollars(limit)}"
    return f"{over} of {len(rows)} tasks are over; {dollars(sum(row.cost_usd for row in rows))}{of} used."
