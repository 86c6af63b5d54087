import os
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import structlog

import gateway.background.worker
import gateway.flow.approvals
import gateway.flow.files.replica
import gateway.flow.outbound.delivery
import gateway.flow.outbound.sender
import gateway.flow.turn.budgets
import gateway.flow.turn.loop
from gateway.config.machine import SystemClock
from gateway.flow.turn.steps import Fence
from gateway.store.connection.pool import Database
from gateway.store.memory import search
from tests.interleavings.world import World


@pytest.fixture
async def world(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Two processes on one database; what they wait for an outage or files takes no time."""
    for module in (gateway.background.worker, gateway.flow.outbound.sender, gateway.flow.outbound.delivery):
        monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    for waits in ("FILES_WAIT_SECONDS", "FILES_POLL_SECONDS"):
        monkeypatch.setattr(gateway.flow.turn.loop, waits, 0.001)
    monkeypatch.setattr(gateway.flow.approvals, "TOGETHER_SECONDS", 0.001)
    monkeypatch.setattr(gateway.flow.turn.budgets, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(gateway.flow.files.replica, "AT_ONCE", 1)  # in the same order each time
    monkeypatch.setattr(Fence, "outlast", outlasted)
    monkeypatch.setattr(search, "RECALL_TIMEOUT_MS", 600_000)  # while others act, a statement waits
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    monitor = await asyncpg.connect(dsn, server_settings={"search_path": "supaclaw"})
    async with await Database.connect(dsn, size=30) as database:
        world = World(database, tmp_path, monitor)
        monkeypatch.setattr(os, "urandom", world.random_bytes)
        monkeypatch.setattr(SystemClock, "sleep", lambda _clock, seconds: world.sleep(seconds))
        yield world
    await monitor.close()
    structlog.reset_defaults()


async def outlasted(_fence: Fence, _limit: float) -> None:
    """The time limit of a call that may have run is over: calls of a schedule take no time."""
