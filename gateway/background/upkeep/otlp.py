"""Messages of OTLP: spans, by OpenTelemetry's conventions for generative AI, and gauges. Imports protobuf.

They have names of models, tools, agents and channels, ids and numbers: no content, argument, address or error text. The
ids follow from those of rows, so that processes agree on links and a span that is sent twice is the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TypeAlias

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gateway.domain.health import Gauge
from gateway.domain.ids import TaskId
from gateway.domain.work.tasks import EndedRun, Status
from gateway.store.work.steps import StepRow, TracedDelivery, TracedRun

_CONVERSATIONS = frozenset({"chat", "agent", "heartbeat"})
_SCOPE = InstrumentationScope(name="supaclaw")
_PROVIDERS = {"gemini": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}
"""Names that differ from ours."""

Facts: TypeAlias = Mapping[str, str | int | float]
Times: TypeAlias = tuple[datetime, datetime]
Kind: TypeAlias = Span.SpanKind.ValueType


def encoded_spans(resource: Facts, spans: Iterable[Span]) -> bytes:
    """A request of the protocol; its own message for requests has the same bytes."""
    scope = trace_pb2.ScopeSpans(scope=_SCOPE, spans=spans)
    whole = trace_pb2.ResourceSpans(resource=Resource(attributes=_attributes(resource)), scope_spans=[scope])
    return bytes(trace_pb2.TracesData(resource_spans=[whole]).SerializeToString())


def encoded_gauges(resource: Facts, gauges: Iterable[Gauge], now: datetime) -> bytes:
    """The same for gauges, all measured now."""
    scope = metrics_pb2.ScopeMetrics(scope=_SCOPE, metrics=(_metric(each, _nanoseconds(now)) for each in gauges))
    whole = metrics_pb2.ResourceMetrics(resource=Resource(attributes=_attributes(resource)), scope_metrics=[scope])
    return bytes(metrics_pb2.MetricsData(resource_metrics=[whole]).SerializeToString())


def _metric(gauge: Gauge, at: int) -> metrics_pb2.Metric:
    metric = metrics_pb2.Metric(name=gauge.name, description=gauge.meaning)
    for each, value in gauge.values.items():
        facts = _attributes({gauge.by: each} if gauge.by else {})
        metric.gauge.data_points.add(attributes=facts, time_unix_nano=at, as_double=value)
    return metric


def run_spans(run: EndedRun, task: TracedRun, steps: Iterable[StepRow]) -> Iterator[Span]:
    """A run with its model calls and tools below it; a node of a tree is linked to its parent's last run."""
    name, facts = task.kind, {"supaclaw.task.kind": task.kind, "supaclaw.task.status": task.status.value}
    if task.kind in _CONVERSATIONS:
        name = f"invoke_agent {task.agent}"
        facts |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": task.agent}
        facts["gen_ai.conversation.id"] = str(task.session_id)
    id, failed = _id(run.task, run.token), task.status is Status.FAILED
    span = _span(run.task, id, name, (run.began, run.ended), facts, Span.SPAN_KIND_INTERNAL, failed=failed)
    if task.parent_id is not None:
        span.links.add(trace_id=task.parent_id.bytes, span_id=_id(task.parent_id, task.parent_token))
    yield span
    for step in steps:
        if step.kind in ("model", "tool"):
            yield _step_span(step, id)


def _step_span(step: StepRow, run: bytes) -> Span:
    facts: Facts = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": step.name}
    facts = _model_call(step) if step.kind == "model" else facts
    name = f"{facts['gen_ai.operation.name']} {facts.get('gen_ai.request.model', step.name)}"
    times = step.created_at - timedelta(milliseconds=step.latency_ms), step.created_at
    kind = Span.SPAN_KIND_CLIENT if step.kind == "model" else Span.SPAN_KIND_INTERNAL
    return _span(step.task_id, _id("step", step.id), name, times, facts, kind, run, failed=step.ok is False)


def _model_call(step: StepRow) -> Facts:
    """The model that was asked first may have failed."""
    provider = step.name.partition("/")[0]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": step.failed[0].model if step.failed else step.name,
        "gen_ai.response.model": step.name,
        "gen_ai.usage.input_tokens": step.tokens_in,
        "gen_ai.usage.output_tokens": step.tokens_out,
        "gen_ai.usage.cache_read.input_tokens": step.tokens_cached,
        "supaclaw.cost_usd": step.cost_usd,
        "supaclaw.failed_tries": len(step.failed),
    }


def delivery_span(sent: TracedDelivery) -> Span:
    """A part of an answer, below the last run of its task."""
    facts = {"supaclaw.channel": sent.channel, "supaclaw.delivery.state": sent.state}
    id, run, name = _id("outbox", sent.id), _id(sent.task_id, sent.token), f"deliver {sent.channel}"
    times, failed = (sent.sending_at, sent.ended_at), sent.state != "sent"
    return _span(sent.task_id, id, name, times, facts, Span.SPAN_KIND_CLIENT, run, failed=failed)


def _span(
    task: TaskId, id: bytes, name: str, times: Times, facts: Facts, kind: Kind, run: bytes = b"", *, failed: bool
) -> Span:
    span = Span(trace_id=task.bytes, span_id=id, parent_span_id=run, name=name, kind=kind)
    span.attributes.extend(_attributes(facts))
    span.start_time_unix_nano, span.end_time_unix_nano = map(_nanoseconds, times)
    if failed:
        span.status.code = trace_pb2.Status.STATUS_CODE_ERROR
    return span


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1e6) * 1_000


def _attributes(facts: Facts) -> Iterator[KeyValue]:
    for key, value in facts.items():
        match value:
            case str():
                yield KeyValue(key=key, value=AnyValue(string_value=value))
            case int():
                yield KeyValue(key=key, value=AnyValue(int_value=value))
            case _:
                yield KeyValue(key=key, value=AnyValue(double_value=value))


def _id(*key: object) -> bytes:
    return sha256(repr(key).encode()).digest()[:8]
