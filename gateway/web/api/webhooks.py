"""Webhooks of platforms: the channel checks its own secret and responds once the update is committed."""

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from gateway.web.errors import Refused
from gateway.web.site import AtSite

router = APIRouter()


@router.post("/webhook/{name}", response_class=PlainTextResponse)
async def deliver(request: Request, site: AtSite, name: str) -> Response:
    """Hand the request to the channel of that name."""
    channel = site.backend.webhooks().get(name)
    if channel is None:
        raise Refused(404, "not_found", "No channel of that name takes webhooks.")
    reply = await channel.deliver(request.headers, await request.body())
    return PlainTextResponse(reply.text, reply.status)
