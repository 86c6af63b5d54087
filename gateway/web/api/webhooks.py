"""Webhooks of platforms: the channel checks its own secret, and responds once the update is committed."""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse, Response

from gateway.domain.channels.channel import WebhookChannel
from gateway.web.auth.access import Caller, Requirement, client_of
from gateway.web.http.errors import Refused
from gateway.web.site import site_of

MAX_UPDATE = 1024 * 1024
"""Bytes; far more than any platform sends in one request."""

router = APIRouter()


async def _platform(request: Request) -> Caller:
    name, site = request.path_params["name"], site_of(request)
    if (wrong := _channel(request).refuses(request.headers)) is None:
        return Caller(f"webhook {name}", frozenset())
    refused = Refused(wrong.status, None, wrong.text)
    raise site.throttle.failed(client_of(request), refused) if wrong.status == 401 else refused


@router.post(
    "/webhook/{name}",
    response_class=PlainTextResponse,
    dependencies=[Depends(Requirement(_platform, "webhook", MAX_UPDATE))],
)
async def deliver(request: Request) -> Response:
    """Deliver an update of a platform to its channel."""
    reply = await _channel(request).deliver(await request.body())
    return PlainTextResponse(reply.text, reply.status)


def _channel(request: Request) -> WebhookChannel:
    channel = site_of(request).channels.webhooks().get(request.path_params["name"])
    if channel is None:
        raise Refused(404, "not_found", "No channel of that name takes webhooks.")
    return channel
