"""Signals: parts of one process tell each other about new work without depending on each other.

The database has the truth: every loop that waits for a signal also polls.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import structlog

from gateway.domain.ids import MessageId, TaskId
from gateway.domain.work.tasks import EndedRun
from gateway.logs.errors import logged

Value = TypeVar("Value")

log = structlog.get_logger(__name__)


class Wakeup(asyncio.Event):
    """Ends the wait of one loop. The loop calls `clear` before it looks, so that no call of `set` is lost meanwhile."""

    async def wait(self, seconds: float | None = None) -> Literal[True]:
        """Return when set, or after `seconds`; None waits without a limit."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await super().wait()
        return True


class Topic(Generic[Value]):
    """Passes each value to all subscribers, in the order of subscription. They must not block; errors are logged."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Value], None]] = []

    def subscribe(self, listener: Callable[[Value], None]) -> None:
        """Add a listener permanently: parts live as long as the process."""
        self._listeners.append(listener)

    def subscribe_call(self, call: Callable[[], None]) -> None:
        """`subscribe` for a listener that ignores the value."""
        self.subscribe(lambda _: call())

    def publish(self, value: Value) -> None:
        """Call all listeners; never raises."""
        for listener in self._listeners:
            with logged(log, "signal.broken", value=str(value)):
                listener(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """All signals of one process. One loop waits for each `Wakeup`; a `Topic` has a payload or several subscribers."""

    tasks: Wakeup = field(default_factory=Wakeup)
    """A task may be claimed."""
    outbox: Wakeup = field(default_factory=Wakeup)
    """A message is committed for sending."""
    commands: Wakeup = field(default_factory=Wakeup)
    """A command may lack its effect."""
    deliveries: Wakeup = field(default_factory=Wakeup)
    """The result of a schedule may have been delivered or refused."""
    access: Wakeup = field(default_factory=Wakeup)
    """Access rights may have changed in the database."""
    schedules: Wakeup = field(default_factory=Wakeup)
    """The next due time of a schedule may have changed."""
    secrets: Wakeup = field(default_factory=Wakeup)
    """A secret may have changed in the database."""
    files: Wakeup = field(default_factory=Wakeup)
    """Files that other machines share may have changed."""
    cancelled: Topic[Collection[TaskId]] = field(default_factory=Topic)
    """Tasks that were cancelled or taken over in the database; their runs here must stop."""
    attempted: Topic[MessageId] = field(default_factory=Topic)
    """The sender has tried to send a part of this message."""
    ended: Topic[EndedRun] = field(default_factory=Topic)
    """A run of this process is over."""
    access_changed: Topic[None] = field(default_factory=Topic)
    """A credential may have lost its rights."""
    memory_low: Topic[None] = field(default_factory=Topic)
    """Caches must drop what they can."""
    lost: Topic[None] = field(default_factory=Topic)
    """Another instance holds a lease of this one."""

    def people_changed(self) -> None:
        """Signal that access, accounts or credentials have changed."""
        self.access.set()
        self.access_changed.publish(None)
