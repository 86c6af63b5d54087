"""Webhooks of platforms, whose channel checks its own secret, and of sources that sign what they send.

Both respond once it is committed.
"""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse, Response

from gateway.domain.channels.channel import WebhookChannel
from gateway.flow.unattended.triggers import TriggerRequest
from gateway.secrets.signatures import SignedSource
from gateway.web.api.triggers import body_text, queued
from gateway.web.auth.access import Caller, Requirement, client_of
from gateway.web.http.errors import Refused
from gateway.web.site import site_of

MAX_UPDATE = 1024 * 1024
"""Bytes; far more than any platform sends in one request."""

router = APIRouter()


async def _platform(request: Request) -> Caller:
    name, site = request.path_params["name"], site_of(request)
    if _signed_source(request):  # the signature is of the body, which is not read yet
        return Caller(f"webhook {name}", frozenset())
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
    """Deliver an update of a platform to its channel, or an event of a signed source to the agent."""
    if source := _signed_source(request):
        return await _trigger(request, source, await request.body())
    reply = await _channel(request).deliver(await request.body())
    return PlainTextResponse(reply.text, reply.status)


def _signed_source(request: Request) -> SignedSource | None:
    """The source of that name, unless a channel has it."""
    name, site = request.path_params["name"], site_of(request)
    return None if name in site.channels.webhooks() else site.trees.triggers.signed().get(name)


async def _trigger(request: Request, source: SignedSource, body: bytes) -> Response:
    site, name, headers = site_of(request), request.path_params["name"], request.headers
    if not source.verifies(headers, body, site.clock.now().timestamp()):
        refused = Refused(401, "wrong_signature", "The body isn't signed with this source's secret, or too long ago.")
        raise site.throttle.failed(client_of(request), refused)
    site.rate_limiter.spend(f"webhook {name}")  # only now: nobody else can use up the source's rate
    event = headers.get("x-github-event", "") if source.kind == "github" else ""
    if event == "ping":
        return PlainTextResponse("pong")
    content = "\n\n".join(filter(None, [event, body_text(body)]))
    sent = TriggerRequest(name, content, f"webhook {name}", key=source.delivery(headers))
    return PlainTextResponse(str((await queued(site, sent)).task_id), 202)


def _channel(request: Request) -> WebhookChannel:
    channel = site_of(request).channels.webhooks().get(request.path_params["name"])
    if channel is None:
        raise Refused(404, "not_found", "No channel of that name takes webhooks.")
    return channel
