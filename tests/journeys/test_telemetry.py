"""Traces and metrics for an OpenTelemetry collector, decoded as one does, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.fakes.eventually import eventually
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.served import Served
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured

pytestmark = pytest.mark.thorough


@dataclass
class Receiver:
    """A collector; `failures` requests are refused first, and none is answered before it is `ready`."""

    failures: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    measured: list[bytes] = field(default_factory=list)
    root: str = ""

    async def post(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.asked.append(request)
        await self.ready.wait()
        if len(self.asked) <= self.failures:
            return web.Response(status=503)
        self.bodies.append(body)
        return web.Response(content_type="application/x-protobuf")

    async def measure(self, request: web.Request) -> web.Response:
        self.measured.append(await request.read())
        return web.Response(content_type="application/x-protobuf")

    @property
    def metrics(self) -> dict[str, Metric]:
        """The newest of each name."""
        exports = map(ExportMetricsServiceRequest.FromString, self.measured)
        wholes = (whole for export in exports for whole in export.resource_metrics)
        return {metric.name: metric for whole in wholes for scope in whole.scope_metrics for metric in scope.metrics}

    @property
    def exports(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    @property
    def spans(self) -> list[Span]:
        scopes = (scope for export in self.exports for each in export.resource_spans for scope in each.scope_spans)
        return [span for scope in scopes for span in scope.spans]

    def below(self, parent: Span) -> list[str]:
        return sorted(span.name for span in self.spans if span.parent_span_id == parent.span_id)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver, app = Receiver(), web.Application()
    app.router.add_post("/v1/traces", receiver.post)
    app.router.add_post("/v1/metrics", receiver.measure)
    async with Served(app) as served:
        receiver.root = served.root
        yield receiver
        receiver.ready.set()


def facts(span: Span) -> dict[str, object]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "") for each in span.attributes}


async def test_a_turn_is_a_span_above_its_model_calls_its_tool_and_its_delivery(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, receiver: Receiver
) -> None:
    receiver.failures = 1
    receiver.ready.set()
    models.rules = [
        Rule("note", tool_calls=(Call("write_file", {"path": "tea.md", "content": "oolong at four"}),)),
        Rule("note", text="Noted: oolong.", after_tools=True),
    ]
    process.configure(configured(telegram, models))
    await process.start(
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.root,
        OTEL_EXPORTER_OTLP_HEADERS="x-key=of%20mine,authorization=Basic abc=",
        OTEL_SERVICE_NAME="claw-at-home",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment=home",
    )
    telegram.say("take a note: oolong at four", OWNER)
    await eventually(lambda: len(receiver.spans) >= 5)

    turn = next(span for span in receiver.spans if span.name == "invoke_agent default")
    calls = [span for span in receiver.spans if span.name == "chat openai/mock-model"]
    assert receiver.below(turn) == [*["chat openai/mock-model"] * 2, "deliver telegram", "execute_tool write_file"]
    assert {span.trace_id for span in receiver.spans if span.parent_span_id == turn.span_id} == {turn.trace_id}
    assert turn.start_time_unix_nano < calls[0].start_time_unix_nano < calls[0].end_time_unix_nano
    assert turn.status.code == Status.STATUS_CODE_UNSET
    assert not turn.parent_span_id

    [(session, tokens, cost)] = await process.rows(
        """select t.session_id::text, s.tokens_in, s.cost_usd from tasks t join task_steps s on s.task_id = t.id
           where s.kind = 'model' order by s.id limit 1"""
    )
    assert facts(turn) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "default",
        "gen_ai.conversation.id": session,
        "supaclaw.task.kind": "chat",
        "supaclaw.task.status": "completed",
    }
    told = facts(calls[0])
    assert (calls[0].kind, told["gen_ai.operation.name"]) == (Span.SPAN_KIND_CLIENT, "chat")
    assert (told["gen_ai.provider.name"], told["gen_ai.request.model"]) == ("openai", "openai/mock-model")
    assert (told["gen_ai.usage.input_tokens"], told["supaclaw.cost_usd"]) == (tokens, cost)

    [resource] = {str(each.resource) for export in receiver.exports for each in export.resource_spans}
    assert all(text in resource for text in ("claw-at-home", "deployment.environment", "service.version"))
    assert receiver.asked[0].headers["x-key"] == "of mine"
    assert receiver.asked[0].headers["Authorization"] == "Basic abc="
    sent = b"".join(receiver.bodies).lower()
    assert not [word for word in (b"oolong", b"tea.md", b"127.0.0.1") if word in sent]
    told = {str(value).lower() for span in receiver.spans for value in facts(span).values()}
    assert not told & {str(OWNER), "ada"}, "an id may have these by chance"


async def test_a_collector_that_does_not_answer_delays_no_turn(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, receiver: Receiver
) -> None:
    process.configure(configured(telegram, models))
    await process.start(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{receiver.root}/v1/traces")
    telegram.say("hello mk1x", OWNER)
    await eventually(lambda: bool(receiver.asked))
    telegram.say("hello mk2x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)
    assert receiver.bodies == []
    assert (await process.terminate()).code == 0


async def test_metrics_are_those_of_the_page_by_the_same_names(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, receiver: Receiver
) -> None:
    process.configure(configured(telegram, models))
    endpoint = f"{receiver.root}/v1/metrics"
    await process.start(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=endpoint, OTEL_METRIC_EXPORT_INTERVAL="1000")
    telegram.say("hello mk1x", OWNER)
    calls = "supaclaw_model_calls_today"
    await eventually(lambda: calls in receiver.metrics and receiver.metrics[calls].gauge.data_points[0].as_double == 1)

    async with process.http() as http:
        lines = (await http.get("/metrics")).text.splitlines()
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == set(receiver.metrics)
    [opened] = receiver.metrics["supaclaw_channel_open"].gauge.data_points
    assert [(each.key, each.value.string_value) for each in opened.attributes] == [("channel", "telegram")]
    assert opened.as_double == 1
    assert opened.time_unix_nano > 0
    assert receiver.bodies == []
