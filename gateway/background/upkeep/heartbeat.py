"""The timer of the heartbeat: checks at intervals for anything to do, mostly without a model."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import structlog

from gateway.agent.limits import dollars, used_up
from gateway.agent.work.heartbeat import NO_MODEL, Occasion, heartbeat_status, instructs, unreadable
from gateway.config.model import Config
from gateway.config.value_types import ActiveHours
from gateway.domain.health import HeartbeatOutcome, HeartbeatResult
from gateway.domain.settings import ModelSettings
from gateway.domain.time import zone
from gateway.flow.engine import Engine
from gateway.flow.turn.budgets import SharedBudgets
from gateway.flow.turn.environment import AgentEnvironments
from gateway.flow.turn.loop import SizedModel
from gateway.store.connection.pool import Connection
from gateway.store.work import heartbeats
from gateway.store.work.budgets import Period
from gateway.store.work.heartbeats import Pulse


class HeartbeatHalt:
    """Stops heartbeats that would only fail again, until the models are reconfigured or the gateway restarts."""

    def __init__(self, models: Callable[[], ModelSettings]) -> None:
        self._models = models
        self._stopped: tuple[str, ModelSettings] | None = None

    @property
    def reason(self) -> str | None:
        """Why heartbeats have stopped; None while they continue."""
        if self._stopped is not None and self._stopped[1] != self._models():
            self._stopped = None
        return self._stopped[0] if self._stopped else None

    def stop(self, reason: str) -> None:
        """Stop timed heartbeats for the models that are configured now."""
        self._stopped = reason, self._models()

    def lift(self) -> None:
        """Continue heartbeats, because a requested one has worked."""
        self._stopped = None


AHEAD = timedelta(minutes=1)
"""How far another gateway's clock may be ahead; a time further ahead means that this clock was set back."""
LONGEST_LOOK = timedelta(days=1)
"""The limit of the look back: older events are not news."""

NOTHING = "nothing to do"
NO_MONEY = "the model budget is used up; /budget shows it, /budget more raises it"

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Heartbeat:
    """Makes heartbeats, one instance per process; several on one database make each beat once. `state` is for people.

    `model` returns None if none is connected.
    """

    engine: Engine
    environments: AgentEnvironments
    config: Callable[[], Config]
    model: Callable[[], SizedModel | None]
    budgets: SharedBudgets
    halt: HeartbeatHalt
    tell_owner: Callable[[str], Awaitable[None]]
    state: str | None = None

    async def beat(self) -> HeartbeatResult:
        """Make a heartbeat now, whatever is configured; if one is running, return that one."""
        pulse = await self.engine.database.run_alone(lambda conn: heartbeats.begin(conn, self.engine.clock.now()))
        return await self._beat(pulse)

    async def look(self) -> datetime | None:
        """Make a heartbeat if one is due; return when to look again."""
        now = self.engine.clock.now()
        async with self.engine.database.connection() as conn:
            pulse = await heartbeats.begin(conn, now)
            if max(pulse.at, pulse.looked) > now + AHEAD:
                pulse = await heartbeats.set_back(conn, now)
        due = self._due(pulse, now)
        if due is not None and due <= now and pulse.outcome is not HeartbeatOutcome.RUNNING:
            await self._beat(pulse)
            return now
        self.state = self._told(pulse, due, now)
        return due if due is not None and due > now else None

    async def _beat(self, pulse: Pulse) -> HeartbeatResult:
        """Make the heartbeat after `pulse`, unless that one still runs or another process made it."""
        if pulse.outcome is HeartbeatOutcome.RUNNING:
            return pulse.beat
        now, owner = self.engine.clock.now(), self.engine.people.owner.id
        file = (await asyncio.to_thread(self.environments.of(owner).persona)).heartbeat
        instructed, idle = instructs(file.text), unreadable(file.text) or NOTHING
        since = max(pulse.looked, now - LONGEST_LOOK)
        found = await self.engine.database.read(lambda conn: heartbeats.concerns(conn, owner, since, now))
        after = await self._after(pulse, now, None if instructed or found else idle)

        async def note(tx: Connection) -> bool:
            noted = await heartbeats.claim(tx, pulse.at, after)
            if noted and after.outcome is HeartbeatOutcome.RUNNING:
                await heartbeats.ask(tx, owner, Occasion(at=now, concerns=tuple(found)).model_dump(mode="json"))
            return noted

        if not await self.engine.database.run(note):
            return (await self.engine.database.run_alone(lambda conn: heartbeats.begin(conn, now))).beat
        log.info("heartbeat.beat", outcome=after.outcome.value, found=len(found), instructed=instructed)
        if after.outcome is HeartbeatOutcome.RUNNING:
            self.engine.signals.tasks.set()
        self.state = self._told(after, self._due(after, now), now)
        if after.broke != pulse.broke:
            await self.tell_owner(f"The heartbeat is paused: {after.text}.")
        return after.beat

    async def _after(self, pulse: Pulse, now: datetime, idle: str | None) -> Pulse:
        """The record of a new heartbeat; `idle` says why it needs no model, None if it needs one."""
        counted = (pulse.beats, pulse.asked) if pulse.day == now.date() else (0, 0)
        known: dict[str, object] = {"at": now, "day": now.date(), "beats": counted[0] + 1, "asked": counted[1]}
        if idle is not None:
            known |= {"outcome": HeartbeatOutcome.IDLE, "text": idle, "looked": now}
        elif self.model() is None:
            known |= {"outcome": HeartbeatOutcome.SKIPPED, "text": NO_MODEL}
        elif broke := await self._broke(now):
            known |= {"outcome": HeartbeatOutcome.SKIPPED, "text": broke, "broke": now.date()}
        else:
            known |= {"outcome": HeartbeatOutcome.RUNNING, "text": "", "asked": counted[1] + 1}
        return pulse.model_copy(update=known)

    async def _broke(self, now: datetime) -> str | None:
        """Why the budget allows no model today; None if it does."""
        limit = self.config().heartbeat.day_usd
        spent = await self.engine.database.read(lambda conn: heartbeats.spent(conn, Period.DAY.start(now)))
        if used_up(spent, limit):
            allowed = f"heartbeat.day_usd allows {dollars(limit or 0.0)}"
            return f"heartbeats cost {dollars(spent)} today, and {allowed}; it resumes tomorrow (UTC)"
        return NO_MONEY if await self.budgets.used_up() else None

    def _due(self, pulse: Pulse, now: datetime) -> datetime | None:
        """When the next heartbeat is due; None while heartbeats are off or stopped."""
        settings = self.config().heartbeat
        if settings.every is None or self.halt.reason is not None:
            return None
        return next_beat(pulse.at, settings.every, settings.active_hours, self._zone(), now)

    def _zone(self) -> tzinfo | None:
        """The time zone of the active hours, else the owner's; None for the machine's."""
        hours = self.config().heartbeat.active_hours
        name = (hours.zone if hours else None) or self.environments.of(self.engine.people.owner.id).zone()
        return zone(name) if name else None

    def _told(self, pulse: Pulse, due: datetime | None, now: datetime) -> str:
        return heartbeat_status(pulse, self.config().heartbeat.every, due, self.halt.reason, now, self._zone())


def next_beat(
    last: datetime, every: timedelta, hours: ActiveHours | None, zone: tzinfo | None, now: datetime
) -> datetime:
    """When the heartbeat after `last` is due, within the hours as `zone` counts them; at the earliest `now`."""
    due = max(last + every, now)
    local = due.astimezone(zone)
    if hours is None or hours.active(due, zone):
        return due
    opening = local.replace(hour=hours.start.hour, minute=hours.start.minute, second=0, microsecond=0)
    return (opening if opening > local else opening + timedelta(days=1)).astimezone(UTC)
