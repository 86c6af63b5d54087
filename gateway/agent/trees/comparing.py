"""Two runs side by side: what each did, what it cost, what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest

from gateway.agent.trees.starting import find
from gateway.domain.ids import PrincipalId
from gateway.store.connection.pool import Connection
from gateway.store.engine import steps, trees
from gateway.store.engine.steps import StepRow
from gateway.store.engine.trees import NodeRow

MOST = 5_000
"""Steps of each run."""


@dataclass(frozen=True, slots=True)
class Run:
    """One of the two: its task with all below it."""

    node: NodeRow
    steps: Sequence[StepRow]
    tasks: int
    cost_usd: float
    tokens: int
    model_ms: int
    """How long its models and tools took, one after another."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The steps beside each other in `rows`, None where a run has no more; the first `same` are alike."""

    a: Run
    b: Run
    rows: Sequence[tuple[StepRow | None, StepRow | None]]
    same: int


async def compare(conn: Connection, principal: PrincipalId, a: str, b: str) -> Comparison:
    """The runs whose ids begin so; a fork has its own steps only. Raises `NoSuchTask`."""
    one, other = await _run(conn, principal, a), await _run(conn, principal, b)
    rows = list(zip_longest(one.steps, other.steps))
    same = sum(1 for _ in takewhile(lambda pair: _alike(*pair), rows))
    return Comparison(one, other, rows, same)


async def _run(conn: Connection, principal: PrincipalId, which: str) -> Run:
    task = await find(conn, principal, which)
    whole = await trees.nodes(conn, (await trees.place(conn, task)).master)
    below = {task}
    for node in whole:  # parents come before their children
        if node.parent_id in below:
            below.add(node.id)
    nodes = [node for node in whole if node.id in below]
    master = whole[0].id
    trace = [step for step in await steps.trace(conn, master, tree=True, most=MOST) if step.task_id in below]
    cost, tokens = sum(node.cost_usd for node in nodes), sum(node.tokens for node in nodes)
    return Run(nodes[0], trace, len(nodes), cost, tokens, sum(step.latency_ms for step in trace))


def _alike(a: StepRow | None, b: StepRow | None) -> bool:
    return a is not None and b is not None and (a.kind, a.name, a.ok) == (b.kind, b.name, b.ok)
