"""A gateway's heartbeat on the real path of a message: only clock, model and messenger are a test's own."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.agent.limits import Limits
from gateway.background.jobs.heartbeat import HeartbeatRun
from gateway.background.upkeep.heartbeat import Heartbeat, HeartbeatHalt
from gateway.config.model import Config
from gateway.domain.work.tasks import Lane
from gateway.flow.turn.budgets import SharedBudgets
from gateway.store.work import heartbeats, tasks
from gateway.store.work.heartbeats import Pulse
from tests.flow.path import FakeModel, MessagePath

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@dataclass
class Clock:
    """Time that passes only when somebody waits for it, or when a test says so."""

    at: datetime = NOON
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += timedelta(seconds=seconds)
        await asyncio.sleep(0)


@dataclass
class Heart:
    """The timer and the runner, as one process has them, and what a test looks at."""

    path: MessagePath
    timer: Heartbeat
    runner: HeartbeatRun
    clock: Clock
    halt: HeartbeatHalt
    model: FakeModel
    config: Config
    told: list[str]
    zone: str | None = "Europe/Berlin"
    limits: Limits = field(default_factory=Limits)
    connected: bool = True

    def instruct(self, text: str = "- Is anything due today?\n") -> None:
        (self.path.workspace / "HEARTBEAT.md").write_text(text)

    def configure(self, **heartbeat: object) -> None:
        self.config = Config.model_validate({"heartbeat": heartbeat, "models": self.config.models})

    def connect(self, primary: str) -> None:
        self.config = Config.model_validate({"heartbeat": self.config.heartbeat, "models": {"primary": primary}})

    async def look(self, minutes: float = 0) -> None:
        """What the timer does after so many minutes."""
        self.clock.at += minutes * MINUTE
        await self.timer.look()

    async def live(self, hours: float) -> None:
        """Let the timer run for so long, with a look every five minutes at least."""
        end = self.clock.at + timedelta(hours=hours)
        while self.clock.at < end:
            due = await self.timer.look() or end
            await self.clock.sleep((min(due, end, self.clock.at + 5 * MINUTE) - self.clock.at).total_seconds())

    async def work(self) -> None:
        """Run the task that waits, as the worker would."""
        await self.runner.run(await self.path.claim(Lane.AGENTS))

    async def pulse(self) -> Pulse:
        async with self.path.database.connection() as conn:
            pulse = await heartbeats.get(conn)
        assert pulse is not None
        return pulse

    async def asked(self) -> list[tuple[str]]:
        """The state of each task that was to ask a model."""
        return await self.path.rows("select status from tasks where kind = 'heartbeat' order by seq")

    async def spend(self, usd: float, kind: str = "heartbeat", at: datetime = NOON) -> None:
        """As if a run had cost so much."""
        async with self.path.database.transaction() as tx:
            task = await tasks.create(tx, self.path.people.owner.id, kind, Lane.AGENTS)
            assert task is not None
            await tx.execute("update tasks set status = 'completed' where id = $1", task)
            await tx.execute(
                """insert into task_steps (task_id, principal_id, kind, name, cost_usd, created_at)
                   values ($1, $2, 'model', 'm', $3, $4)""",
                task,
                self.path.people.owner.id,
                usd,
                at,
            )

    async def fail(self, name: str, at: datetime, label: int = 0) -> None:
        """Work of the agent that failed."""
        async with self.path.database.transaction() as tx:
            payload = {"name": name, "label": label}
            task = await tasks.create(tx, self.path.people.owner.id, "agent", Lane.AGENTS, payload=payload)
            await tx.execute("update tasks set status = 'failed', updated_at = $2 where id = $1", task, at)

    async def kept(self) -> dict[str, str]:
        """The files of heartbeats, by their path."""
        assert await self.path.journal.catch_up()
        top = self.path.workspace / "sessions" / "heartbeat"
        return {str(file.relative_to(top)): file.read_text() for file in sorted(top.rglob("*.md"))}


def heart(path: MessagePath, clock: Clock | None = None, **more: Any) -> Heart:
    """A heart of its own, as another process on the same database would have."""
    clock, told, model = clock or Clock(), list[str](), path.model

    async def tell(text: str) -> None:
        told.append(text)

    halt = HeartbeatHalt(lambda: made.config.models)
    environments = replace(path.environments, owner_zone=lambda: made.zone)
    timer = Heartbeat(
        replace(path.parts.work.parts.engine, clock=clock),
        environments,
        lambda: made.config,
        lambda: made.model if made.connected else None,
        SharedBudgets(path.database, lambda: made.limits, clock),
        halt,
        tell,
    )
    parts = path.parts.work.parts
    runner = HeartbeatRun(
        replace(parts.engine, clock=clock),
        replace(parts.agents, environments=environments),
        path.proactive,
        lambda: made.model if made.connected else None,
        halt,
        lambda: made.config.heartbeat.to,
    )
    made = Heart(path, timer, runner, clock, halt, model, Config(), told, **more)
    return made
