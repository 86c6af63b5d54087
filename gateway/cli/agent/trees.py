"""`supaclaw tasks` and `supaclaw agents`: trees of agents in the background, and the agents that files describe."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from gateway.agent.limits import dollars
from gateway.agent.work import task_trees
from gateway.agent.work.agents import Agents, ListedAgent
from gateway.agent.work.task_trees import MOST_STEPS, TreeRequest, Trees, task_line, tree_summary
from gateway.cli.connections.database import require_owner, with_database, with_owner
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import AsJson, argument, facts_of, option, print_json, print_result, print_rows
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.errors import OwnerMustAct, required
from gateway.domain.ids import PrincipalId, TaskId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Status
from gateway.domain.work.trees import MAIN
from gateway.store.connection.pool import Connection, Database
from gateway.store.work import steps, trees
from gateway.store.work.steps import CommittedSteps, StepRow
from gateway.store.work.trees import NodeRow
from gateway.workspace.files.tree import Workspace

POLL_SECONDS = 0.5
LISTED = 200
COLUMNS = ("id", "name", "agent", "status", "waits_for", "cost_usd", "created_at")
STEP_COLUMNS = ("id", "kind", "name", "ok", "latency_ms", "tokens_in", "tokens_out", "cost_usd", "message_id")
NONE = "No tasks. `supaclaw tasks create TEXT` starts one."

Which = Annotated[str, argument("The task's id, or its beginning.", "ID")]


def create(
    text: Annotated[str, argument("The task, with all that the agent has to know.", "TEXT")],
    agent: Annotated[str, option("The agent.", "SLUG")] = MAIN,
    budget: Annotated[float | None, option("Highest cost, at most budgets.task_usd.", "USD")] = None,
    key: Annotated[str | None, option("The same key never starts a second task.", "KEY")] = None,
) -> None:
    """Start a task; its result comes to your chat."""
    environment = Environment.read(os.environ)
    budgets = load_early(environment, os.environ).budgets
    all_trees = Trees(Agents(Workspace(environment.workspace)), lambda: budgets)

    async def work(conn: Connection, owner: PrincipalId) -> TaskId:
        await all_trees.check(agent, Label.UNTRUSTED)
        named, most = key and f"cli {key}", all_trees.within(budget)
        request = TreeRequest(agent, text, Label.OWNER, most, private=True, key=named, most_live=None, shared=None)
        return await task_trees.start(conn, owner, request)

    echo(with_owner(work))


def list_tasks(as_json: AsJson = False) -> None:
    """List the latest trees."""
    print_rows(with_owner(lambda conn, owner: trees.newest(conn, owner, LISTED)), COLUMNS, as_json=as_json, none=NONE)


def show_task(which: Which, as_json: AsJson = False) -> None:
    """Show a whole tree: states, costs, results."""
    rows = with_owner(lambda conn, owner: task_trees.show(conn, owner, which))
    print_result(list(map(facts_of, rows)), "\n".join(_tree_lines(rows)), as_json=as_json)


def follow(which: Which, as_json: AsJson = False) -> None:
    """Show what a tree does, live, then its result.

    Exits with 1 unless the tree is completed.
    """

    async def work(database: Database) -> Sequence[NodeRow]:
        shown, since, settled = "", 0, CommittedSteps()
        while True:
            async with database.connection() as conn:
                rows = await task_trees.show(conn, (await require_owner(conn)).id, which)
                whole = await settled.look(conn)
                new = await steps.trace(conn, rows[0].id, tree=True, since=since, until=settled.upto)
            if not as_json:
                for step in new:
                    echo(step_line(step))
                if (now := tree_summary(rows)) != shown:
                    echo(shown := now)
            since = new[-1].id if new else since
            if rows[0].status.final and whole and not new:
                return rows
            await asyncio.sleep(0 if new else POLL_SECONDS)

    [top, *_] = with_database(work)
    facts = {"id": str(top.id), "status": top.status.value, "result": top.result, "error": top.error}
    print_result(facts, top.result or top.error or top.status.value, as_json=as_json)
    if top.status is not Status.COMPLETED:
        raise typer.Exit(1)


def trace(which: Which, as_json: AsJson = False) -> None:
    """List the steps of a task: model calls, tools, hand-offs, questions."""

    async def read(conn: Connection, owner: PrincipalId) -> list[StepRow]:
        return await steps.trace(conn, await task_trees.find_task(conn, owner, which), most=MOST_STEPS)

    print_rows(with_owner(read), STEP_COLUMNS, as_json=as_json)


def fork(
    which: Which,
    at: Annotated[int, option("The step to run again, by its number in `trace`.", "STEP")],
    model: Annotated[str | None, option("Another model (default: its agent's).", "NAME")] = None,
) -> None:
    """Run a task again from one of its model calls.

    The new run asks before every act, and writes to a copy of the files.
    """
    echo(with_owner(lambda conn, owner: task_trees.fork(conn, owner, which, at, model)))


def compare(which: Which, other: Which, as_json: AsJson = False) -> None:
    """Show two runs side by side: steps, costs, results."""
    comparison = with_owner(lambda conn, owner: task_trees.compare(conn, owner, which, other))
    if as_json:
        print_json(asdict(comparison))
        return
    for one, two in comparison.rows:
        echo(f"{step_line(one) if one else '':60.60} | {step_line(two) if two else ''}")
    for name, run in (("A", comparison.a), ("B", comparison.b)):
        cost = f"{run.tasks} tasks, {len(run.steps)} steps, {run.tokens} tokens, {dollars(run.cost_usd)}"
        echo(f"\n{name}: {cost}, {run.model_ms} ms\n{run.node.result or run.node.error or run.node.status.value}")


def cancel(which: Which) -> None:
    """Cancel a task and all below it, at once."""
    task, _ = with_owner(lambda conn, owner: task_trees.cancel(conn, owner, which))
    echo(f"Cancelled: {task}")


def step_line(step: StepRow) -> str:
    """A step in one line: its number, task, kind, name, outcome, time and cost."""
    ended = "" if step.ok is None else " ok" if step.ok else " failed"
    took = f" {step.latency_ms} ms" if step.latency_ms else ""
    spent = f", {step.tokens_in} in, {step.tokens_out} out, {dollars(step.cost_usd)}" if step.kind == "model" else ""
    return f"{step.id} {str(step.task_id)[: task_trees.SHORT]} {step.kind} {step.name}{ended}{took}{spent}"


def _tree_lines(rows: Sequence[NodeRow]) -> Iterator[str]:
    yield tree_summary(rows)
    for row in rows:
        yield "\n".join([task_line(row), *(f"{'  ' * row.depth}  {path}" for path in row.storage_paths)])
    if text := rows[0].result or rows[0].error:
        yield f"\n{text}"


AGENT_COLUMNS = ("slug", "description", "model", "state", "problem")
Slug = Annotated[str, argument("The name of the agent's file, without .md.", "SLUG")]


def _agent_facts(listed: ListedAgent) -> Mapping[str, object]:
    """An agent as its file describes it now; of a file with an error only the problem is known."""
    agent = listed.agent
    head = agent.head if agent else None
    return {
        "slug": listed.slug,
        "description": head.description if head else "",
        **{name: getattr(agent, name, None) for name in ("model", "skills")},
        **{name: getattr(head, name, None) for name in ("tools", "budget")},
        "state": "wrong" if head is None else "on" if head.is_active else "off",
        "problem": listed.problem,
        "prompt": agent.prompt if agent else "",
    }


def list_agents(as_json: AsJson = False) -> None:
    """List the agents, and the errors in their files."""
    print_rows(list(map(_agent_facts, _all_agents())), AGENT_COLUMNS, as_json=as_json, none="No agents.")


def show_agent(slug: Slug, as_json: AsJson = False) -> None:
    """Show one agent with its prompt."""
    facts = _agent_facts(_agent_named(slug))
    lines = [f"{slug}: {facts['state']}. {facts['description'] or facts['problem']}"]
    told = ((name, facts[name]) for name in ("model", "tools", "skills", "budget") if facts[name] is not None)
    lines += (f"{name}: {', '.join(value) if isinstance(value, tuple) else value}" for name, value in told)
    lines += ["", str(facts["prompt"])] if facts["prompt"] else []
    print_result([facts], "\n".join(lines), as_json=as_json)


def check_agent(slug: Slug) -> None:
    """Check an agent's file; exits with 1 if it can't be used."""
    facts = _agent_facts(_agent_named(slug))
    if facts["problem"]:
        raise OwnerMustAct(f"{slug}: {facts['problem']}")
    echo(f"{slug}: the file is valid, and the agent is {facts['state']}")


def _all_agents() -> Sequence[ListedAgent]:
    return asyncio.run(Agents(Workspace(Environment.read(os.environ).workspace)).list_all())


def _agent_named(slug: str) -> ListedAgent:
    agent = next((each for each in _all_agents() if each.slug == slug), None)
    return required(agent, OwnerMustAct(f"there is no agent {slug!r}; `supaclaw agents list` shows them"))
