"""The engine: the parts of a process that nearly every flow and job needs."""

from dataclasses import dataclass

from gateway.config.failpoints import Failpoints
from gateway.domain.ids import InstanceId
from gateway.domain.time import Clock
from gateway.flow.live import Live
from gateway.flow.people import People
from gateway.flow.signals import Signals
from gateway.store.connection.pool import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One of each per process."""

    database: Database
    people: People
    instance: InstanceId
    clock: Clock
    failpoints: Failpoints
    live: Live
    signals: Signals
