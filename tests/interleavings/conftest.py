import os
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import structlog

import gateway.background.worker
import gateway.flow.outbound.delivery
import gateway.flow.outbound.sender
import gateway.flow.turn.loop
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
    monkeypatch.setattr(search, "RECALL_TIMEOUT_MS", 600_000)  # while others act, a statement waits
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    monitor = await asyncpg.connect(dsn, server_settings={"search_path": "supaclaw"})
    async with await Database.connect(dsn, size=30) as database:
        world = World(database, tmp_path, monitor)
        monkeypatch.setattr(os, "urandom", world.random_bytes)
        yield world
    await monitor.close()
    structlog.reset_defaults()
