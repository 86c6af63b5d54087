"""The state of the gateway, for programs and monitoring: its status, heartbeats, sessions and undelivered messages."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import PlainTextResponse, Response

from gateway.domain.health import HeartbeatResult
from gateway.domain.people.credentials import Scope
from gateway.store.delivery import outbox
from gateway.store.delivery.outbox import OutboxRow, State
from gateway.store.transcript import sessions
from gateway.store.transcript.sessions import SessionSummary
from gateway.store.work import heartbeats
from gateway.web.auth.access import needs, public
from gateway.web.backend import StatusReport
from gateway.web.site import AtSite

router = APIRouter()


@router.get("/health", dependencies=[Depends(public)], response_class=PlainTextResponse)
async def health(site: AtSite) -> Response:
    """Respond ok, without a credential; 503 if the gateway does not work or waits for its database."""
    if site.health.healthy():
        return PlainTextResponse("ok\n")
    return PlainTextResponse("waiting\n" if site.health.waits_for_database() else "unwell\n", 503)


@router.get("/api/status", dependencies=[Depends(needs(Scope.READ))])
async def status(site: AtSite) -> StatusReport:
    """Get the status of the gateway; the costs are of today, by UTC."""
    return await site.health.status()


@router.post("/api/requeue", dependencies=[Depends(needs(Scope.ADMIN))])
async def requeue(site: AtSite) -> dict[str, int]:
    """Store the messages that only the journal has; returns their number."""
    return {"requeued": await site.chat.inbox.requeue()}


@router.get("/metrics", dependencies=[Depends(needs(Scope.READ))], response_class=PlainTextResponse)
async def metrics(site: AtSite) -> Response:
    """Get gauges in Prometheus' text format."""
    report = await site.health.status()
    uptime = (site.clock.now() - report.started_at).total_seconds()
    lines = "\n".join(_gauges(report, uptime, healthy=site.health.healthy()))
    return PlainTextResponse(lines + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")


def _gauges(report: StatusReport, uptime: float, *, healthy: bool) -> Iterator[str]:
    today, vitals, channels = report.today, report.vitals, report.channels.items()
    yield from _gauge("supaclaw_healthy", "1 while event loop, database and channels work.", int(healthy))
    yield from _gauge("supaclaw_database_up", "1 while the database answers.", int(report.database_problem is None))
    yield from _gauge("supaclaw_uptime_seconds", "Seconds since the start.", round(uptime, 3))
    yield from _gauge("supaclaw_unclean_ends", "Ends of the process by itself in the last day.", vitals.unclean_ends)
    yield from _gauge("supaclaw_model_calls_today", "Model calls since midnight UTC.", today.calls)
    yield from _gauge("supaclaw_tokens_in_today", "Prompt tokens since midnight UTC.", today.tokens_in)
    yield from _gauge("supaclaw_tokens_out_today", "Answer tokens since midnight UTC.", today.tokens_out)
    yield from _gauge("supaclaw_cost_usd_today", "US dollars since midnight UTC.", today.cost_usd)
    if vitals.loop is not None:
        meaning = "How late the event loop was at worst in the last minute."
        yield from _gauge("supaclaw_event_loop_late_seconds", meaning, vitals.loop.worst_ms / 1000)
    if (memory := vitals.memory) is not None:
        yield from _gauge("supaclaw_memory_bytes", "Memory of this process, without Postgres.", memory.used)
        yield from _gauge("supaclaw_memory_ceiling_bytes", "Above this it sheds load.", memory.ceiling)
        yield from _gauge("supaclaw_shedding", "1 while memory is above its ceiling.", int(memory.shedding))
    opened = {f'{{channel="{name}"}}': int(state == "open") for name, state in channels}
    yield from _gauges_of("supaclaw_channel_open", "1 while a channel is open.", opened)
    queue = {f'{{status="{name}"}}': count for name, count in sorted(report.queue.items())}
    yield from _gauges_of("supaclaw_tasks", "Live tasks by status.", queue)


def _gauge(name: str, meaning: str, value: float) -> Iterator[str]:
    return _gauges_of(name, meaning, {"": value})


def _gauges_of(name: str, meaning: str, values: Mapping[str, float]) -> Iterator[str]:
    """Lines of one metric, by labels."""
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} gauge"
    yield from (f"{name}{labels} {value}" for labels, value in values.items())


@router.post("/api/heartbeat", status_code=202, dependencies=[Depends(needs(Scope.ADMIN))])
async def beat(site: AtSite) -> HeartbeatResult:
    """Run a heartbeat now, even if none is configured, or join the running one. While `running`, repeat the request."""
    return await site.health.beat()


@router.get("/api/heartbeat", dependencies=[Depends(needs(Scope.READ))])
async def last(site: AtSite) -> HeartbeatResult:
    """Get the outcome of the last heartbeat."""
    return (await site.database.read(lambda conn: heartbeats.begin(conn, site.clock.now()))).beat


Limit = Annotated[int, Query(ge=1, le=500)]


@router.get("/api/sessions", dependencies=[Depends(needs(Scope.READ))])
async def recent(site: AtSite, limit: Limit = 50) -> list[SessionSummary]:
    """List sessions, the most recently active first."""
    return await site.database.read(lambda conn: sessions.recent(conn, limit))


@router.get("/api/outbox", dependencies=[Depends(needs(Scope.READ))])
async def undelivered(site: AtSite, state: State = "failed", limit: Limit = 100) -> list[OutboxRow]:
    """List messages that were not delivered, or perhaps not (`uncertain`), the newest first."""
    return await site.database.read(lambda conn: outbox.in_state(conn, state, limit))
