"""The gauges of the gateway's state, for `/metrics` and for an OpenTelemetry collector."""

from collections.abc import Iterator
from datetime import datetime

from gateway.domain.health import Gauge
from gateway.web.backend import HealthParts, StatusReport


async def read_gauges(health: HealthParts, now: datetime) -> list[Gauge]:
    """All gauges; those that are not known yet are left out."""
    report = await health.status()
    uptime = (now - report.started_at).total_seconds()
    return [
        _gauge("supaclaw_healthy", "1 while event loop, database and channels work.", int(health.healthy())),
        _gauge("supaclaw_database_up", "1 while the database answers.", int(report.database_problem is None)),
        _gauge("supaclaw_uptime_seconds", "Seconds since the start.", round(uptime, 3)),
        *_work(report),
        *_process(report),
    ]


def _work(report: StatusReport) -> Iterator[Gauge]:
    today, queue = report.today, dict(sorted(report.queue.items()))
    opened = {name: int(state == "open") for name, state in report.channels.items()}
    yield _gauge("supaclaw_model_calls_today", "Model calls since midnight UTC.", today.calls)
    yield _gauge("supaclaw_tokens_in_today", "Prompt tokens since midnight UTC.", today.tokens_in)
    yield _gauge("supaclaw_tokens_out_today", "Answer tokens since midnight UTC.", today.tokens_out)
    yield _gauge("supaclaw_cost_usd_today", "US dollars since midnight UTC.", today.cost_usd)
    yield Gauge("supaclaw_channel_open", "1 while a channel is open.", opened, "channel")
    yield Gauge("supaclaw_tasks", "Live tasks by status.", queue, "status")


def _process(report: StatusReport) -> Iterator[Gauge]:
    vitals = report.vitals
    yield _gauge("supaclaw_unclean_ends", "Ends of the process by itself in the last day.", vitals.unclean_ends)
    if vitals.loop is not None:
        meaning = "How late the event loop was at worst in the last minute."
        yield _gauge("supaclaw_event_loop_late_seconds", meaning, vitals.loop.worst_ms / 1000)
    if (memory := vitals.memory) is not None:
        yield _gauge("supaclaw_memory_bytes", "Memory of this process, without Postgres.", memory.used)
        yield _gauge("supaclaw_memory_ceiling_bytes", "Above this it sheds load.", memory.ceiling)
        yield _gauge("supaclaw_shedding", "1 while memory is above its ceiling.", int(memory.shedding))


def _gauge(name: str, meaning: str, value: float) -> Gauge:
    return Gauge(name, meaning, {"": value})
