import asyncio

import pytest
from structlog.testing import capture_logs

from gateway.background.upkeep import timers
from gateway.background.upkeep.timers import keep_running
from gateway.domain.errors import DatabaseDown


async def test_what_breaks_is_started_again_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "backoff", lambda _failures: 0.0)
    outcomes = iter([RuntimeError("once"), RuntimeError("twice"), None])
    tries = 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        if (outcome := next(outcomes)) is not None:
            raise outcome

    await keep_running("test", work)
    assert tries == 3


async def test_an_outage_is_waited_for_and_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "backoff", lambda _failures: 0.0)
    outcomes = iter([DatabaseDown("it is away"), None])

    async def work() -> None:
        if (outcome := next(outcomes)) is not None:
            raise outcome

    with capture_logs() as logs:
        await keep_running("test", work)
    assert [(entry["event"], entry["error"]) for entry in logs] == [("background.waits", "it is away")]


async def test_cancelling_it_ends_it() -> None:
    task = asyncio.create_task(keep_running("test", asyncio.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
