"""Triggers, by which other programs have the agent act, and webhooks: of platforms, and of programs that sign them."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Path, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.domain.channels.channel import WebhookChannel
from gateway.domain.errors import raising, required
from gateway.domain.people.credentials import Scope
from gateway.domain.work.tasks import Status
from gateway.domain.work.trees import MODELS
from gateway.flow.unattended.triggers import QueueFull, TriggerRequest
from gateway.secrets.signatures import SignedSource
from gateway.web.auth.access import Caller, Requirement, client_of, needs
from gateway.web.http.bodies import RequestBody, json_body, validated
from gateway.web.http.errors import Refused, existing
from gateway.web.site import PRINTABLE, AtSite, Site, site_of
from gateway.workspace.instructions import SOURCE_PATTERN

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTABLE)]


class Trigger(RequestBody):
    """A trigger: what happened, as `text` or as a `payload`, and where the answer goes."""

    source: str | None = Field(
        None, pattern=SOURCE_PATTERN, description="Where it happened; optional with a source's token."
    )
    text: str | None = Field(None, description="What happened, in words.")
    payload: object = Field(None, description="What happened, as any JSON; either this or `text`.")
    agent: str = "default"
    session: Name | None = Field(None, description="The source's conversation to continue; default: a new one.")
    deliver_to: Name | None = Field(None, description="A channel, or `none`; default: where the owner wrote last.")
    idempotency_key: Name | None = Field(None, description="A repeated request with the same key is ignored.")

    @model_validator(mode="after")
    def _one_content(self) -> "Trigger":
        if (self.text is None) == (self.payload is None):
            raise PydanticCustomError("one_content", "give either text or payload")
        _ = self.content  # JSON of a depth that can just be read may be too deep to be written again
        return self

    @cached_property
    def content(self) -> str:
        """The content as text."""
        return json.dumps(self.payload, ensure_ascii=False) if self.text is None else self.text


def body_text(body: bytes) -> str:
    """The body as text; raises `Refused` if it is not UTF-8."""
    with raising(Refused(400, "invalid_request", "The body is not text in UTF-8."), UnicodeDecodeError):
        return body.decode()


BUSY_SECONDS = 60
MAX_TRIGGER = 256 * 1024

_ANYTHING = {"requestBody": {"required": True, "content": {"*/*": {"schema": {}}}}}

router = APIRouter()
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]


Sender = Annotated[Caller, Depends(needs(Scope.TRIGGER, body=MAX_TRIGGER))]


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """The created task, and the path of its status."""

    task_id: UUID
    status: Status
    status_url: str


@router.post("/trigger", status_code=202, openapi_extra=json_body(Trigger.model_json_schema()))
async def trigger(request: Request, site: AtSite, caller: Sender, key: Key = None) -> QueuedTask:
    """Send a trigger to the agent, which treats the content as data, not as instructions."""
    site.rate_limiter.spend(caller.account)
    body = validated(Trigger, await request.body())
    if body.agent not in MODELS:
        raise Refused(400, "unknown_agent", f"There is only {', '.join(MODELS)}.", param="agent")
    if key and body.idempotency_key not in {None, key}:
        raise Refused(400, "invalid_request", "The header and the body name different keys.", param="idempotency_key")
    source, key = _source(caller, body.source), body.idempotency_key or key
    return await _queued(site, TriggerRequest(source, body.content, caller.account, body.session, body.deliver_to, key))


@router.post("/trigger/{source}", status_code=202, openapi_extra=_ANYTHING)
async def hook(
    request: Request,
    site: AtSite,
    caller: Sender,
    source: Annotated[str, Path(pattern=SOURCE_PATTERN)],
    key: Key = None,
    session: Name | None = None,
    deliver_to: Name | None = None,
) -> QueuedTask:
    """Send a trigger from a program with a fixed request format: the raw body is the content."""
    site.rate_limiter.spend(caller.account)
    content = body_text(await request.body())
    return await _queued(
        site, TriggerRequest(_source(caller, source), content, caller.account, session, deliver_to, key)
    )


def _source(caller: Caller, named: str | None) -> str:
    if caller.source is not None and named not in {None, caller.source}:
        raise Refused(403, "wrong_source", f"This token may send for {caller.source} only.", param="source")
    source = caller.source or named
    return required(source, Refused(400, "invalid_request", "source: name the source of the event", param="source"))


async def _queued(site: Site, sent: TriggerRequest) -> QueuedTask:
    if not sent.content.strip():
        raise Refused(400, "invalid_request", "The content is empty; say what happened.")
    try:
        taken = await site.trees.triggers.accept(sent)
    except QueueFull as error:
        raise Refused(503, "queue_full", f"{error}.", headers={"Retry-After": str(BUSY_SECONDS)}) from None
    return QueuedTask(taken.task, taken.status, f"/api/tasks/{taken.task}")


MAX_UPDATE = 1024 * 1024
"""Bytes; far more than any platform sends in one request."""


async def _platform(request: Request) -> Caller:
    name, site = request.path_params["name"], site_of(request)
    # A signature is of the body, which is not read yet.
    if _signed_source(request) or (wrong := _channel(request).refuses(request.headers)) is None:
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
    body = await request.body()
    if source := _signed_source(request):
        return await _trigger(request, source, body)
    reply = await _channel(request).deliver(body)
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
    return PlainTextResponse(str((await _queued(site, sent)).task_id), 202)


def _channel(request: Request) -> WebhookChannel:
    channels = site_of(request).channels.webhooks()
    return existing(channels.get(request.path_params["name"]), "No channel of that name takes webhooks.")
