"""Trees for programs and screens: starting, cancelling and forking them, and following their traces."""

import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from gateway.agent.work import task_trees
from gateway.agent.work.task_trees import TreeRequest, Trees
from gateway.domain.ids import InstanceId, PrincipalId, TaskId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Status
from gateway.flow.engine import Engine
from gateway.flow.signals import Wakeup
from gateway.flow.unattended.triggers import AcceptedTrigger, accepted_before
from gateway.store.connection.listener import Subscriptions
from gateway.store.connection.pool import Connection, Database
from gateway.store.work import instances, steps, trees, triggers
from gateway.store.work.steps import MOST, CommittedSteps, StepRow

TASKS_SOURCE = "/api/tasks"
"""The source of programs' trees among the triggers; no trigger can have this name."""


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """A program's request for a tree; `account` names its credential, `label` is how far its words are trusted."""

    agent: str
    input: str
    label: Label
    account: str
    budget_usd: float | None = None
    key: str | None = None

    @property
    def digest(self) -> str:
        """The hash of everything that an idempotency key stands for."""
        return hashlib.sha256(json.dumps([self.agent, self.input, self.budget_usd]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TreeControl:
    """Starts, cancels and forks the owner's trees."""

    engine: Engine
    owner: PrincipalId
    trees: Trees

    async def start(self, request: ProgramRequest) -> AcceptedTrigger:
        """Start a tree, committed on return; its result goes to no chat. Raises `NoSuchAgent`, `KeyReused`."""
        await self.trees.check(request.agent, request.label)
        made = await self.engine.database.run(lambda tx: self._started(tx, request))
        self.engine.signals.tasks.set()
        return made

    async def cancel(self, which: str) -> TaskId:
        """Cancel a task and its subtasks; raises `NoSuchTask`."""
        task, running = await self.engine.database.run(lambda tx: task_trees.cancel(tx, self.owner, which))
        self.engine.signals.cancelled.publish(running)
        return task

    async def fork(self, which: str, at: int, model: str | None = None) -> TaskId:
        """As `task_trees.fork`."""
        made = await self.engine.database.run(lambda tx: task_trees.fork(tx, self.owner, which, at, model))
        self.engine.signals.tasks.set()
        return made

    async def _started(self, tx: Connection, request: ProgramRequest) -> AcceptedTrigger:
        key = request.key and f"{request.account} {request.key}"
        if key is not None and (before := await accepted_before(tx, TASKS_SOURCE, key, request.digest)):
            return before
        budget, own = self.trees.within(request.budget_usd), request.label is Label.OWNER
        wanted = TreeRequest(
            request.agent, request.input, request.label, budget, private=own, deliver=False, most_live=None, shared=None
        )
        task = await task_trees.start(tx, self.owner, wanted)
        account, digest = request.account, request.digest
        await triggers.add(tx, self.owner, TASKS_SOURCE, task, account=account, key=key, digest=digest)
        return AcceptedTrigger(task, Status.PENDING)


POLL_SECONDS, UNSETTLED_SECONDS = 2.0, 0.05
"""Seconds between two reads without a notification; the second while a step with an earlier number may still come."""
LEASE_SECONDS = 10.0
"""How long a follower gets notifications after its last read."""


@dataclass(frozen=True, slots=True)
class Progress:
    """New steps, and the number of tasks in each status; the last one is `over`."""

    steps: Sequence[StepRow]
    counts: Mapping[Status, int]
    over: bool


@dataclass
class TraceFollowers:
    """The followers of this process; `subscriptions` are the notification channels of their traces."""

    database: Database
    instance: InstanceId
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    _waiting: defaultdict[str, set[Wakeup]] = field(default_factory=lambda: defaultdict(set), init=False)

    def heard(self, channel: str) -> bool:
        """Wake the followers of this channel; False if it is not a trace's."""
        for each in self._waiting.get(channel, ()):
            each.set()
        return channel.startswith(instances.FOLLOWED_PREFIX)

    async def follow(self, task: TaskId, *, tree: bool, since: int = 0) -> AsyncGenerator[Progress, None]:
        """Yield the progress of a task, or of the whole tree below it, after the step `since`, until its end."""
        channel = f"{instances.FOLLOWED_PREFIX}{'master' if tree else 'task'}:{task}"
        settled, renewed = CommittedSteps(), -LEASE_SECONDS
        known: Mapping[Status, int] = {}
        with self._called(channel) as called:
            while True:
                called.clear()
                async with self.database.connection() as conn:
                    if monotonic() > renewed + LEASE_SECONDS / 3:
                        await instances.take_lease(conn, channel, self.instance, LEASE_SECONDS)
                        renewed = monotonic()
                    counts = await trees.counts(conn, task, tree=tree)
                    whole = await settled.look(conn)
                    rows = await steps.trace(conn, task, tree=tree, since=since, until=settled.upto)
                more = len(rows) == MOST
                over = whole and not more and all(status.final for status in counts)
                if rows or counts != known or over:
                    yield Progress(rows, counts, over)
                if over:
                    return
                known, since = counts, rows[-1].id if rows else since
                if not more:
                    await called.wait(POLL_SECONDS if whole else UNSETTLED_SECONDS)

    @contextmanager
    def _called(self, channel: str) -> Iterator[Wakeup]:
        called = Wakeup()
        self._waiting[channel].add(called)
        self.subscriptions.add(channel)
        try:
            yield called
        finally:
            self._waiting[channel].discard(called)
            if not self._waiting[channel]:
                del self._waiting[channel]
                self.subscriptions.discard(channel)
