"""To-do lists of one principal's runs: stored as rows, rendered into `todo/todo.md`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from gateway.domain.conversation.tools import Caller
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.work.todo_lists import FILE, FREE_CALLS, TODO, TodoList, lacking, rendered
from gateway.logs.errors import logged
from gateway.store.connection.pool import Database
from gateway.store.work import todo_lists
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace

log = structlog.get_logger(__name__)


@dataclass
class TodoLists:
    """The lists; `on_change` is called after each change."""

    database: Database
    principal: PrincipalId
    own: Label
    workspace: Workspace
    on_change: Callable[[], None]
    _rendering: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def refusal(self, tool: str, caller: Caller) -> str | None:
        """Why a run may not make this call before it has written a list; None if it may. Chats need none."""
        if caller.address is not None or tool == TODO or caller.ordinal < FREE_CALLS:
            return None
        return lacking(await self.of(caller), caller.ordinal)

    async def of(self, caller: Caller) -> TodoList | None:
        """The list of the caller's run."""
        return await self.database.read(lambda conn: todo_lists.get(conn, caller.task))

    async def write(self, caller: Caller, change: Callable[[TodoList], TodoList]) -> TodoList:
        """Change the run's todo and the file; if `change` raises, both stay."""
        label = max(self.own, caller.label)
        before = await self.of(caller) or TodoList(caller.task, "", (), None, label, caller.ordinal)
        todo = replace(change(before), label=label, ordinal=caller.ordinal)
        await self.database.run(lambda tx: todo_lists.put(tx, self.principal, todo))
        self.on_change()
        if todo.trivial is not None:
            log.info("todo.trivial", task_id=str(todo.task))
        await self.render()
        return todo

    async def render(self) -> None:
        """Write the stored lists to the file; a failure is only logged, since the database is authoritative."""
        async with self._rendering:
            live = await self.database.read(lambda conn: todo_lists.live(conn, self.principal))
            with logged(log, "todo.not_rendered", WorkspaceError):
                if text := rendered(live):
                    await self.workspace.write(FILE, text, max(todo.label for todo in live), unlocked=True)
                else:
                    await self.workspace.remove(FILE, unlocked=True)
