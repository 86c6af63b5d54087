import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from structlog.testing import capture_logs
from tenacity import wait_none

from gateway.background.upkeep import telemetry
from gateway.background.upkeep.otlp import run_spans
from gateway.background.upkeep.telemetry import MAX_WAITING, Collector, Metrics, Telemetry
from gateway.config.machine import SystemClock
from gateway.domain.health import Gauge
from gateway.domain.ids import MessageId, TaskId
from gateway.domain.work.tasks import EndedRun, Status
from gateway.store.connection.pool import Database
from gateway.store.work.steps import TracedRun
from tests.fakes.engine import engine_on
from tests.fakes.eventually import eventually

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
AT = "http://otel:4318"
NOW = datetime(2026, 11, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    ("environ", "traces", "metrics"),
    [
        ({}, None, None),
        ({BASE: "http://otel:4318/"}, "http://otel:4318/v1/traces", "http://otel:4318/v1/metrics"),
        ({BASE: "http://otel:4318", TRACES: "https://else.example/x"}, "https://else.example/x", f"{AT}/v1/metrics"),
        ({BASE: "http://otel:4318", "OTEL_METRICS_EXPORTER": "none"}, "http://otel:4318/v1/traces", None),
        ({BASE: "http://otel:4318", "OTEL_SDK_DISABLED": "TRUE"}, None, None),
    ],
)
def test_the_usual_variables_say_where_they_go(
    environ: dict[str, str], traces: str | None, metrics: str | None
) -> None:
    found = [Collector.read(environ, "traces"), Collector.read(environ, "metrics")]
    assert [collector and collector.url for collector in found] == [traces, metrics]


async def test_a_problem_with_metrics_is_logged_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry.Collector, "send", telemetry.Collector.send.retry_with(wait=wait_none()))

    async def read() -> list[Gauge]:
        return [Gauge("supaclaw_healthy", "1 while it works.", {"": 1})]

    metrics = Metrics(Collector("http://127.0.0.1:1/v1/metrics", {}, {}), read, SystemClock())
    with capture_logs() as logs:
        await metrics.look()
        await metrics.look()
    assert [line["event"] for line in logs] == ["telemetry.metrics"]


def test_a_node_is_linked_to_the_last_run_of_its_parent() -> None:
    parent, child = TaskId(uuid4()), TaskId(uuid4())
    above = TracedRun("agent", "default", Status.PENDING_SUBTASK, None, None, None)
    below = TracedRun("agent", "research", Status.FAILED, None, parent, 4)
    [outer] = run_spans(EndedRun(parent, 4, NOW, NOW), above, ())
    [inner] = run_spans(EndedRun(child, 1, NOW, NOW), below, ())

    assert [(link.trace_id, link.span_id) for link in inner.links] == [(outer.trace_id, outer.span_id)]
    assert (inner.name, inner.parent_span_id, inner.status.code) == ("invoke_agent research", b"", 2)


async def test_what_a_dead_collector_does_not_take_is_counted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "BATCH_SECONDS", 0.0)
    engine = engine_on(database)
    sender = Telemetry(engine, Collector("http://127.0.0.1:1/v1/traces", {}, {}))
    for number in range(MAX_WAITING + 5):
        engine.signals.attempted.publish(MessageId(number))
    monkeypatch.setattr(telemetry.Collector, "send", telemetry.Collector.send.retry_with(wait=wait_none()))
    with capture_logs() as logs:
        running = asyncio.create_task(sender.run())
        await eventually(lambda: bool(logs))
        running.cancel()

    assert [(line["event"], line["events"]) for line in logs] == [("telemetry.dropped", MAX_WAITING + 5)]
