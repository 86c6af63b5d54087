from datetime import UTC, datetime

from gateway.config.clock import SystemClock


async def test_time_is_in_utc_and_goes_on() -> None:
    clock = SystemClock()
    before = clock.monotonic()

    await clock.sleep(0)

    assert clock.monotonic() >= before
    assert clock.now().tzinfo is UTC
    assert clock.now() >= datetime(2026, 1, 1, tzinfo=UTC)
