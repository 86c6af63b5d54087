"""Plans of one principal's runs: stored as rows, rendered into `todo/todo.md`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from gateway.domain.conversation.tools import Caller
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.work.plans import FILE, FREE_CALLS, TODO, Plan, lacking, rendered
from gateway.store.connection.pool import Database
from gateway.store.work import plans
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace

log = structlog.get_logger(__name__)


@dataclass
class Plans:
    """The plans; `on_change` is called after each change."""

    database: Database
    principal: PrincipalId
    own: Label
    workspace: Workspace
    on_change: Callable[[], None]
    _rendering: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def refusal(self, tool: str, caller: Caller) -> str | None:
        """Why a run may not make this call before it has written a plan; None if it may. Chats need no plan."""
        if caller.address is not None or tool == TODO or caller.ordinal < FREE_CALLS:
            return None
        return lacking(await self.of(caller), caller.ordinal)

    async def of(self, caller: Caller) -> Plan | None:
        """The plan of the caller's run."""
        async with self.database.connection() as conn:
            return await plans.get(conn, caller.task)

    async def write(self, caller: Caller, change: Callable[[Plan], Plan]) -> Plan:
        """Change the run's plan and the file; if `change` raises, both stay."""
        label = max(self.own, caller.label)
        before = await self.of(caller) or Plan(caller.task, "", (), None, label, caller.ordinal)
        plan = replace(change(before), label=label, ordinal=caller.ordinal)
        await self.database.run(lambda tx: plans.put(tx, self.principal, plan))
        self.on_change()
        if plan.trivial is not None:
            log.info("plan.trivial", task_id=str(plan.task))
        await self.render()
        return plan

    async def render(self) -> None:
        """Write the stored plans to the file; a failure is only logged, since the database is authoritative."""
        async with self._rendering:
            async with self.database.connection() as conn:
                live = await plans.live(conn, self.principal)
            try:
                if text := rendered(live):
                    await self.workspace.write(FILE, text, max(plan.label for plan in live), unlocked=True)
                else:
                    await self.workspace.remove(FILE, unlocked=True)
            except WorkspaceError as error:
                log.warning("plan.not_rendered", error=str(error))
