"""`supaclaw tasks`: trees of agents in the background."""

import os
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from gateway.agent.trees import starting
from gateway.agent.trees.agents import Agents
from gateway.agent.trees.starting import TreeRequest, Trees, line, summary
from gateway.cli.console import echo
from gateway.cli.database import require_owner, with_connection
from gateway.cli.output import AsJson, print_json, print_rows
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.ids import TaskId
from gateway.domain.principals import Label
from gateway.domain.tasks import Status
from gateway.domain.trees import MAIN
from gateway.store import trees
from gateway.store.pool import Connection
from gateway.store.trees import NodeRow
from gateway.workspace.tree import Workspace

POLL_SECONDS = 1.0
LISTED = 200
COLUMNS = ("id", "name", "agent", "status", "cost_usd", "created_at")
NONE = "No tasks. `supaclaw tasks create TEXT` starts one."

Which = Annotated[str, typer.Argument(metavar="ID", help="The beginning of its id.")]


def create(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="All that the agent has to know.")],
    agent: Annotated[str, typer.Option(metavar="SLUG", help="Which agent (default: main).")] = MAIN,
    budget: Annotated[float | None, typer.Option(metavar="USD", help="No more than budgets.task_usd.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="The same key never starts a second one.")] = None,
) -> None:
    """Start a task; its result comes to your chat."""
    environment = Environment.read(os.environ)
    limit = load_early(environment, os.environ).budgets.task_usd
    known = Trees(Agents(Workspace(environment.workspace)), lambda: limit)

    async def work(conn: Connection) -> TaskId:
        owner = await require_owner(conn)
        await known.check(agent)
        request = TreeRequest(agent, text, Label.OWNER, known.within(budget), private=True, key=key and f"cli {key}")
        return await starting.start(conn, owner.id, request)

    echo(str(with_connection(work)))


def show_all(as_json: AsJson = False) -> None:
    """List the latest trees."""

    async def read(conn: Connection) -> list[NodeRow]:
        return await trees.newest(conn, (await require_owner(conn)).id, LISTED)

    print_rows(with_connection(read), COLUMNS, as_json=as_json, none=NONE)


def show(which: Which, as_json: AsJson = False) -> None:
    """Show a whole tree: states, costs, results."""
    rows = _tree(which)
    print_rows(rows, COLUMNS, as_json=True) if as_json else _print(rows)


def follow(which: Which, as_json: AsJson = False) -> None:
    """Wait for a task and print its result; exits with 1 if there is none."""
    shown = ""
    while not (top := (rows := _tree(which))[0]).status.final:
        if not as_json and (now := summary(rows)) != shown:
            echo(shown := now)
        time.sleep(POLL_SECONDS)
    if as_json:
        print_json({"id": str(top.id), "status": top.status.value, "result": top.result, "error": top.error})
    else:
        echo(top.result or top.error or top.status.value)
    if top.status is not Status.COMPLETED:
        raise typer.Exit(1)


def cancel(which: Which) -> None:
    """Cancel a task and all below it, at once."""

    async def work(conn: Connection) -> TaskId:
        return (await starting.cancel(conn, (await require_owner(conn)).id, which))[0]

    echo(f"Cancelled: {with_connection(work)}")


def _tree(which: str) -> Sequence[NodeRow]:
    async def read(conn: Connection) -> Sequence[NodeRow]:
        return await starting.show(conn, (await require_owner(conn)).id, which)

    return with_connection(read)


def _print(rows: Sequence[NodeRow]) -> None:
    echo(summary(rows))
    for row in rows:
        echo(line(row))
    if rows[0].result or rows[0].error:
        echo(f"\n{rows[0].result or rows[0].error}")
