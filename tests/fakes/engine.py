"""An engine for a part that a test runs by itself."""

from typing import Any, cast
from uuid import uuid4

from gateway.config.failpoints import Failpoints
from gateway.config.machine import SystemClock
from gateway.domain.ids import InstanceId
from gateway.domain.time import Clock
from gateway.flow.engine import Engine
from gateway.flow.live import Live
from gateway.flow.people import People
from gateway.flow.signals import Signals
from gateway.store.connection.pool import Database


def engine_on(
    database: Database,
    *,
    people: Any = None,
    instance: InstanceId | None = None,
    clock: Clock | None = None,
    failpoints: Failpoints | None = None,
    signals: Signals | None = None,
) -> Engine:
    """One on this database; `people` may be anything with what the part asks of them."""
    return Engine(
        database=database,
        people=cast(People, people),
        instance=instance or InstanceId(uuid4()),
        clock=clock or SystemClock(),
        failpoints=failpoints or Failpoints(None),
        live=Live(),
        signals=signals or Signals(),
    )
