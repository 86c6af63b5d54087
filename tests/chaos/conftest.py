"""Runs the quick faults in every run and all of them with `SUPACLAW_CHAOS=full`; a test says which fault it makes."""

import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.chaos.faults import Fault
from tests.chaos.ledger import Outcome
from tests.chaos.report import COLLECTED, Collected, Watcher
from tests.conftest import FULL as FULL
from tests.journeys.conftest import embedded as embedded
from tests.journeys.conftest import models as models
from tests.journeys.conftest import process as process
from tests.journeys.conftest import telegram as telegram
from tests.journeys.process import GatewayProcess

Judge = Callable[..., None]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fault(*faults): which rows of the chaos table a test fills")
    config.stash[COLLECTED] = Collected()
    config.pluginmanager.register(Watcher(config.stash[COLLECTED]), "chaos")


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judge:
    """Enters an outcome in the table, then asks that it is clean."""

    def enter(fault: Fault, outcome: Outcome, *notes: str) -> None:
        request.config.stash[COLLECTED].add(fault, outcome, *notes)
        assert outcome.is_clean, outcome.told()

    return enter


@pytest.fixture
def chance() -> random.Random:
    """Seeded anew in each run; `SUPACLAW_CHAOS_SEED` repeats one that failed."""
    seed = os.environ.get("SUPACLAW_CHAOS_SEED") or uuid4().hex[:8]
    print(f"SUPACLAW_CHAOS_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
async def second(tmp_path: Path, dsn: str) -> AsyncIterator[GatewayProcess]:
    """Another gateway on the same database, with a data folder of its own."""
    home = tmp_path / "second"
    home.mkdir()
    process = GatewayProcess(home, dsn)
    yield process
    await process.close()
