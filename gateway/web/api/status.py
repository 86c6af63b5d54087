"""The state of the gateway, for programs and monitoring: its status, heartbeats, sessions and undelivered messages."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import PlainTextResponse, Response

from gateway.domain.health import Gauge, HeartbeatResult
from gateway.domain.people.credentials import Scope
from gateway.store.delivery import outbox
from gateway.store.delivery.outbox import OutboxRow, State
from gateway.store.transcript import sessions
from gateway.store.transcript.sessions import SessionSummary
from gateway.store.work import heartbeats
from gateway.web.auth.access import needs, public
from gateway.web.backend import StatusReport
from gateway.web.gauges import read_gauges
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
    lines = [line for gauge in await read_gauges(site.health, site.clock.now()) for line in _lines(gauge)]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")


def _lines(gauge: Gauge) -> Iterator[str]:
    yield f"# HELP {gauge.name} {gauge.meaning}\n# TYPE {gauge.name} gauge"
    for each, value in gauge.values.items():
        yield f'{gauge.name}{{{gauge.by}="{each}"}} {value}' if gauge.by else f"{gauge.name} {value}"


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
