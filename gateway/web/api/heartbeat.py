"""Manual heartbeats: for a terminal, a systemd timer or a cron job."""

from fastapi import APIRouter, Depends

from gateway.domain.health import HeartbeatResult
from gateway.domain.people.credentials import Scope
from gateway.store.work import heartbeats
from gateway.web.auth.access import needs
from gateway.web.site import AtSite

router = APIRouter()


@router.post("/api/heartbeat", status_code=202, dependencies=[Depends(needs(Scope.ADMIN))])
async def beat(site: AtSite) -> HeartbeatResult:
    """Run a heartbeat now, even if none is configured, or join the running one. While `running`, repeat the request."""
    return await site.health.beat()


@router.get("/api/heartbeat", dependencies=[Depends(needs(Scope.READ))])
async def last(site: AtSite) -> HeartbeatResult:
    """Get the outcome of the last heartbeat."""
    async with site.database.connection() as conn:
        return (await heartbeats.begin(conn, site.clock.now())).beat
