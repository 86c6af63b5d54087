"""Background tasks: the chat's agent starts, follows and cancels trees of agents."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from gateway.agent.limits import dollars
from gateway.agent.work import task_trees
from gateway.agent.work.task_trees import (
    SharedBudget,
    TreeRequest,
    Trees,
    task_line,
    tree_summary,
)
from gateway.domain.conversation.tools import (
    AnyTool,
    ArgumentRole,
    Caller,
    Change,
    Effect,
    Labelled,
    ToolArguments,
    ToolClass,
    ToolFailed,
)
from gateway.domain.errors import required
from gateway.domain.people.access import is_group
from gateway.domain.principals import Label, Role, label_of
from gateway.domain.work.trees import LONGEST_INPUT, MAIN, MOST_FILES, MOST_LIVE
from gateway.store.connection.pool import Connection
from gateway.store.people import principals
from gateway.store.transcript import sessions
from gateway.store.work import trees
from gateway.tools import PrincipalContext, Services, Transact, declared, tool

SHOWN = 10
MAX_RESULT_CHARS = 2_000
ROLES = {"action": ArgumentRole.CHOICE, "id": ArgumentRole.ID}


class StartArguments(ToolArguments):
    """Arguments of start_task."""

    input: str = Field(min_length=1, max_length=LONGEST_INPUT, description="All it has to know: it sees nothing else")
    agent: str = Field(MAIN, description="Slug of an agent; main works as you do")
    budget: float | None = Field(None, gt=0, description="US dollars")


class TasksArguments(ToolArguments):
    """Arguments of tasks."""

    action: Literal["list", "show", "cancel"] = "list"
    id: str | None = None


@dataclass(frozen=True, slots=True)
class _TasksTool:
    trees: Trees
    context: PrincipalContext
    transact: Transact

    async def proposed(self, arguments: StartArguments, _caller: Caller) -> Change:
        """The work, who would do it and the most that it may cost.

        Refused to groups, where everybody would spend: their conversations are untrusted, so each start comes by here.
        """
        if is_group(await self.transact(lambda tx: principals.identities(tx, self.context.principal))):
            raise ToolFailed.own("not_in_groups", "A group can't start tasks; the person can, in a private chat.")
        most = self.trees.within(arguments.budget)
        cost = "" if most is None else f", for {dollars(most)} at most"
        return Change(f"Start this in the background, by the agent {arguments.agent}{cost}:\n{arguments.input}")

    @tool("Starting: {input}", "Started: {input}", ToolClass.ACT, proposed, effect=Effect.IDEMPOTENT, private=True)
    async def start_task(self, arguments: StartArguments, caller: Caller) -> Labelled:
        """Start long work in the background, by agents that may split it. This chat goes on, and gets the result."""
        await self.trees.check(arguments.agent, caller.label)
        tainted = caller.label > label_of(self.context.role, private=True, as_owner=True)
        request = TreeRequest(
            arguments.agent,
            arguments.input,
            caller.label,
            self.trees.within(arguments.budget),
            private=True,
            key=f"{caller.task}/{caller.ordinal}",
            address=caller.address,
            most_live=None if self.context.role is Role.OWNER else MOST_LIVE,
            shared=SharedBudget(caller.session, self.trees.budgets().run_usd) if tainted else None,
        )
        task = await self.transact(lambda tx: task_trees.start(tx, self.context.principal, request))
        message = "It has begun; its result will come to this chat as a message. Don't wait for it."
        return Labelled.own({"task": str(task)[: task_trees.SHORT], "message": message})

    async def kind(self, arguments: TasksArguments, _caller: Caller) -> ToolClass:
        return ToolClass.ACT if arguments.action == "cancel" else ToolClass.READ

    async def cancelled(self, arguments: TasksArguments, _caller: Caller) -> Change | None:
        """The task that would be cancelled: the beginning of an id may mean another one later."""
        if arguments.action != "cancel" or arguments.id is None:
            return None
        which = arguments.id
        row = await self.transact(lambda tx: task_trees.node(tx, self.context.principal, which))
        return Change(f"Cancel this task with all below it: {task_line(row).strip()}", str(row.id))

    @tool("Tasks: {action}", "Tasks: {action}", kind, cancelled, effect=Effect.IDEMPOTENT, private=True, roles=ROLES)
    async def tasks(self, arguments: TasksArguments, _caller: Caller) -> Labelled:
        """Background tasks: list them, show how far one is, cancel one."""
        if arguments.action == "list":
            return await self.transact(self._list)
        which = required(arguments.id, ToolFailed.own("invalid_arguments", f"{arguments.action} needs id."))
        act = self._show if arguments.action == "show" else self._cancel
        return await self.transact(lambda tx: act(tx, which))

    async def _list(self, tx: Connection) -> Labelled:
        rows = await trees.newest(tx, self.context.principal, SHOWN)
        label = await sessions.highest_label(tx, [row.session_id for row in rows])
        return Labelled({"tasks": [task_line(row) for row in rows]}, label)

    async def _show(self, tx: Connection, which: str) -> Labelled:
        rows = await task_trees.show(tx, self.context.principal, which)
        label = await sessions.highest_label(tx, [row.session_id for row in rows])
        result = {"result": rows[0].result[:MAX_RESULT_CHARS]} if rows[0].result else {}
        files = [path for row in rows for path in row.storage_paths][:MOST_FILES]
        listed = [task_line(row) for row in rows[:100]]
        return Labelled({"summary": tree_summary(rows), "tasks": listed, "files": [*files], **result}, label)

    async def _cancel(self, tx: Connection, which: str) -> Labelled:
        task, running = await task_trees.cancel(tx, self.context.principal, which)
        return Labelled({"cancelled": str(task)[: task_trees.SHORT], "were_running": len(running)}, Label.OWNER)


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tools for the trees of the person that the tools act for."""
    if services.trees is None or services.context is None or services.engine is None:
        return ()
    return declared(_TasksTool(services.trees, services.context, services.engine))
