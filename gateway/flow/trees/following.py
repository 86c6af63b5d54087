"""Traces as they grow: another process tells who follows one, and they look every few seconds anyway."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from gateway.domain.ids import InstanceId, TaskId
from gateway.domain.work.tasks import Status
from gateway.flow.wakeup import Wakeup
from gateway.store.connection.listener import Subscriptions
from gateway.store.connection.pool import Database
from gateway.store.engine import leases, steps, trees
from gateway.store.engine.steps import MOST, Settled, StepRow

POLL_SECONDS, UNSETTLED_SECONDS = 2.0, 0.05
"""Between two looks, where nothing is told; where a step may still come that has an earlier number."""
LEASE_SECONDS = 10.0
"""How long steps are told of after a follower's last look."""


@dataclass(frozen=True, slots=True)
class Progress:
    """New steps; `counts` has how many tasks are in each status, and after one that is `over` nothing comes."""

    steps: Sequence[StepRow]
    counts: Mapping[Status, int]
    over: bool


@dataclass
class TraceFollowers:
    """Those of this process; `subscriptions` are what its listener hears of beside the fixed channels."""

    database: Database
    instance: InstanceId
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    _waiting: defaultdict[str, set[Wakeup]] = field(default_factory=lambda: defaultdict(set), init=False)

    def heard(self, channel: str) -> bool:
        """Whether it is a trace's channel; who follows it looks at once."""
        for each in self._waiting.get(channel, ()):
            each.set()
        return channel.startswith(leases.FOLLOWED)

    async def follow(self, task: TaskId, *, tree: bool, since: int = 0) -> AsyncGenerator[Progress, None]:
        """Yield what a task, or the whole tree that it is the first of, does behind the step `since`, until its end."""
        channel = f"{leases.FOLLOWED}{'master' if tree else 'task'}:{task}"
        settled, renewed = Settled(), -LEASE_SECONDS
        known: Mapping[Status, int] = {}
        with self._called(channel) as called:
            while True:
                called.clear()
                async with self.database.connection() as conn:
                    if monotonic() > renewed + LEASE_SECONDS / 3:
                        await leases.take(conn, channel, self.instance, LEASE_SECONDS)
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
