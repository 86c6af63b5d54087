"""What a program or a screen does with trees: it starts, cancels and forks them; this process hears of it at once."""

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass

from gateway.agent.work import task_trees
from gateway.agent.work.task_trees import TreeRequest, Trees
from gateway.domain.ids import PrincipalId, TaskId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Status
from gateway.flow.unattended.triggers import AcceptedTrigger, KeyReused
from gateway.store.connection.pool import Connection, Database
from gateway.store.scheduling import triggers

SOURCE = "/api/tasks"
"""As what a program's trees are noted among the triggers; no trigger's source can have this name."""


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """A tree that a program asks for; `account` names its credential, `label` is how far its words are trusted."""

    agent: str
    input: str
    label: Label
    account: str
    budget_usd: float | None = None
    key: str | None = None

    @property
    def digest(self) -> str:
        """Of everything that an idempotency key stands for."""
        return hashlib.sha256(json.dumps([self.agent, self.input, self.budget_usd]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TreeControl:
    """For the owner's trees; `woken` and `stop` tell the worker what there is to do, and what runs no more."""

    database: Database
    owner: PrincipalId
    trees: Trees
    woken: Callable[[], None]
    stop: Callable[[Collection[TaskId]], None]

    async def start(self, request: ProgramRequest) -> AcceptedTrigger:
        """Committed when this returns; its result is told in no chat. Raises `NoSuchAgent`, `KeyReused`."""
        await self.trees.check(request.agent)
        made = await self.database.run(lambda tx: self._started(tx, request))
        self.woken()
        return made

    async def cancel(self, which: str) -> TaskId:
        """End a task with all below it; raises `NoSuchTask`."""
        task, running = await self.database.run(lambda tx: task_trees.cancel(tx, self.owner, which))
        self.stop(running)
        return task

    async def fork(self, which: str, at: int, model: str | None = None) -> TaskId:
        """As `forking.fork`."""
        made = await self.database.run(lambda tx: task_trees.fork(tx, self.owner, which, at, model))
        self.woken()
        return made

    async def _started(self, tx: Connection, request: ProgramRequest) -> AcceptedTrigger:
        key = request.key and f"{request.account} {request.key}"
        if key is not None:
            await triggers.reserve(tx, SOURCE, key)
            if before := await triggers.by_key(tx, SOURCE, key):
                if before.digest != request.digest:
                    raise KeyReused("This idempotency key was already used with different content; choose another one.")
                return AcceptedTrigger(before.task_id, before.status)
        budget, own = self.trees.within(request.budget_usd), request.label is Label.OWNER
        wanted = TreeRequest(request.agent, request.input, request.label, budget, private=own, deliver=False)
        task = await task_trees.start(tx, self.owner, wanted)
        account, digest = request.account, request.digest
        await triggers.add(tx, self.owner, SOURCE, task, account=account, key=key, digest=digest)
        return AcceptedTrigger(task, Status.PENDING)
