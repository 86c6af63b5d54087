"""Telemetry: tells an OpenTelemetry collector of this process's runs, deliveries and gauges, by OTLP over HTTP.

The variables are OpenTelemetry's. A collector that is slow or gone costs spans, which are counted, and nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from typing import Literal
from urllib.parse import unquote

import structlog
from cachetools import LRUCache
from tenacity import retry, stop_after_attempt, wait_exponential

from gateway.domain.errors import TryAgainLater
from gateway.domain.health import Gauge
from gateway.domain.ids import MessageId, TaskId
from gateway.domain.time import Clock
from gateway.domain.work.tasks import EndedRun
from gateway.flow.engine import Engine
from gateway.net.addresses import Rules, parse_url
from gateway.net.errors import NetError
from gateway.net.fetch import load_client
from gateway.store.connection.pool import Connection
from gateway.store.work import steps
from gateway.store.work.steps import StepRow

MAX_WAITING = 1_000
BATCH_SECONDS = 2.0
_SECONDS = 10.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Collector:
    """Where traces or metrics go to, and the facts about this program that go with them."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    resource: Mapping[str, str]

    @classmethod
    def read(cls, environ: Mapping[str, str], kind: Literal["traces", "metrics"]) -> "Collector | None":
        """The collector that OpenTelemetry's variables name; None if they name none, or switch it off."""
        base, own = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/"), f"OTEL_EXPORTER_OTLP_{kind.upper()}"
        url = environ.get(f"{own}_ENDPOINT") or (base and f"{base}/v1/{kind}")
        off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        if not url or off or environ.get(f"OTEL_{kind.upper()}_EXPORTER") == "none":
            return None
        headers = ("OTEL_EXPORTER_OTLP_HEADERS", f"{own}_HEADERS")
        named = {"service.name": name} if (name := environ.get("OTEL_SERVICE_NAME")) else {}
        ours = {"service.name": "supaclaw", "service.version": version("supaclaw")}
        resource = {**ours, **_pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", "")), **named}
        return cls(url, _pairs(",".join(environ.get(each, "") for each in headers)), resource)

    @retry(stop=stop_after_attempt(3), wait=wait_exponential(max=10), reraise=True)
    async def send(self, body: bytes) -> None:
        """Post it; raises `NetError`. The operator's own address may be in a private network."""
        client, target = await asyncio.to_thread(load_client), parse_url(self.url)
        rules = Rules.of([target.origin.partition("://")[2]])
        headers = {**self.headers, "Content-Type": "application/x-protobuf"}
        async with client.guarded(lambda: rules, client.Limits(seconds=_SECONDS)) as http:
            with client.translated_errors(target.host):
                status = (await http.post(target.url, headers=headers, content=body)).status_code
        if status != 200:
            raise NetError("refused", f"the collector answered {status}")


def _pairs(text: str) -> dict[str, str]:
    """The values of "key=value,key=value", percent-encoded."""
    found = (pair.partition("=") for pair in text.split(","))
    return {unquote(key.strip()): unquote(value.strip()) for key, _, value in found if value}


class Telemetry:
    """Makes spans of what has ended here, from what the database records, and sends them in batches."""

    def __init__(self, engine: Engine, collector: Collector) -> None:
        self._database, self._collector = engine.database, collector
        self._waiting: asyncio.Queue[EndedRun | MessageId] = asyncio.Queue(MAX_WAITING)
        self._told: LRUCache[TaskId, int] = LRUCache(MAX_WAITING)
        """The last step of each task that a span has told."""
        self._dropped = 0
        engine.signals.ended.subscribe(self._note)
        engine.signals.attempted.subscribe(self._note)

    def _note(self, event: EndedRun | MessageId) -> None:
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self._dropped += 1

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            batch = [await self._waiting.get()]
            await asyncio.sleep(BATCH_SECONDS)
            batch += [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]
            try:
                await self._collector.send(await self._spans(batch))
            except (NetError, TryAgainLater) as error:
                self._dropped += len(batch)
                log.warning("telemetry.dropped", events=self._dropped, error=str(error))

    async def _spans(self, batch: Sequence[EndedRun | MessageId]) -> bytes:
        await asyncio.to_thread(import_module, "gateway.background.upkeep.otlp")
        from gateway.background.upkeep.otlp import delivery_span, encoded_spans, run_spans

        made = []
        async with self._database.connection() as conn:
            for event in batch:
                if not isinstance(event, EndedRun):
                    made += [delivery_span(each) for each in await steps.deliveries(conn, event)]
                elif (task := await steps.traced(conn, event.task)) is not None:
                    made += run_spans(event, task, await self._new_steps(conn, event.task))
        return encoded_spans(self._collector.resource, made)

    async def _new_steps(self, conn: Connection, task: TaskId) -> list[StepRow]:
        rows = await steps.trace(conn, task, since=self._told.get(task, 0))
        if rows:
            self._told[task] = rows[-1].id
        return rows


@dataclass(slots=True)
class Metrics:
    """Sends the gauges. They say how things are, so those that can't be sent are not kept."""

    collector: Collector
    read: Callable[[], Awaitable[Sequence[Gauge]]]
    clock: Clock
    _problem: str = field(default="", init=False)

    async def look(self) -> None:
        """Send them as they are now; a problem is logged when it begins."""
        gauges = await self.read()
        await asyncio.to_thread(import_module, "gateway.background.upkeep.otlp")
        from gateway.background.upkeep.otlp import encoded_gauges

        before, self._problem = self._problem, ""
        try:
            await self.collector.send(encoded_gauges(self.collector.resource, gauges, self.clock.now()))
        except NetError as error:
            self._problem = str(error)
            if self._problem != before:
                log.warning("telemetry.metrics", error=self._problem, hint="OTEL_METRICS_EXPORTER=none sends none")
